// People who write all the time, whatever happens to their host: for kills in mid-stream.
import { pause } from './wait.mjs'

export class Load {
  constructor(accounts) {
    Object.assign(this, { done: 0, refused: 0, stopping: false })
    this.workers = accounts.map((account) => this.write(account))
  }

  async write(account) {
    const mine = []
    for (let n = 0; !this.stopping; n++) {
      try {
        // Creates, and now and then an update, a batch or a delete of what was made here.
        if (n % 7 === 6) await account.put('com.example.busy', 'counter', { n })
        else if (n % 11 === 10) await account.batch(Array.from({ length: 20 }, (_, i) => ['create', 'com.example.busy', `${Date.now()}-${i}`, { n, i }]))
        else if (n % 5 === 4 && mine.length > 0) await account.remove('app.bsky.feed.post', mine.shift())
        else mine.push(await account.post(`busy ${n}`))
        this.done++
      } catch {
        this.refused++
        await pause(50)
      }
    }
  }

  async stop() {
    this.stopping = true
    await Promise.all(this.workers)
  }
}
