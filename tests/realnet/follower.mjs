// A consumer that we did not write (`@atproto/sync`) on the mirror's own stream, from
// its first event to its last. It checks signatures and proofs itself; what it hears is
// folded into records the way an AppView does it.
import { Firehose } from '@atproto/sync'
import { difference, everyKeyOf, readWithAny, resolver } from './repos.mjs'
import { askBytes } from './xrpc.mjs'
import { until } from './wait.mjs'

export class Follower {
  constructor(network, mirror) {
    Object.assign(this, { network, mirror, identities: resolver(network), repos: new Map(), counts: {}, errors: [], disorder: [], cursor: 0, last: '' })
  }

  start() {
    this.firehose = new Firehose({
      service: this.mirror.url.replace('http', 'ws'),
      idResolver: this.identities,
      unauthenticatedHandles: true,
      subscriptionReconnectDelay: 200,
      maxReconnectSeconds: 1,
      getCursor: () => this.cursor,
      onError: (error) => this.errors.push(`${error.message}: ${error.cause?.stack ?? error.cause}; ${described(error.event ?? error.value)}`),
      handleEvent: (event) => this.handle(event),
    })
    this.firehose.start()
  }

  stop() {
    return this.firehose?.destroy()
  }

  // What it heard since it was last asked.
  news() {
    const words = Object.entries(this.counts).map(([kind, count]) => [kind, count - (this.before?.[kind] ?? 0)])
    this.before = { ...this.counts }
    return `heard ${words.filter(([, count]) => count > 0).map(([kind, count]) => `${count} ${kind}`).join(', ')}`
  }

  repo(did) {
    if (!this.repos.has(did)) this.repos.set(did, { rev: '', state: 'active', records: new Map() })
    return this.repos.get(did)
  }

  async handle(event) {
    this.counts[event.event] = (this.counts[event.event] ?? 0) + 1
    // Several operations of one commit have one number; nothing else has.
    const name = `${event.did} ${event.commit ?? event.event}`
    if (event.seq < this.cursor || (event.seq === this.cursor && name !== this.last)) {
      this.disorder.push(`number ${event.seq} (${name}) after ${this.cursor} (${this.last})`)
    }
    const repo = this.repo(event.did)
    if (event.event === 'account') {
      repo.state = event.active ? 'active' : event.status
      if (repo.state === 'deleted') this.repos.set(event.did, { rev: '', state: 'deleted', records: new Map() })
    } else if (event.event === 'sync') {
      await this.fetch(event.did, repo)
    } else if (event.event !== 'identity' && event.rev >= repo.rev) {
      // What a fetch has brought already is not undone by what came before it.
      if (!(event.rev === repo.rev && repo.fetched)) this.fold(event, repo)
    }
    this.cursor = event.seq
    this.last = name
  }

  fold(event, repo) {
    const path = `${event.collection}/${event.rkey}`
    if (event.event === 'delete') repo.records.delete(path)
    else repo.records.set(path, event.cid.toString())
    repo.rev = event.rev
    repo.fetched = false
  }

  // A `#sync` says: what you have may not follow from what you had; fetch it.
  async fetch(did, repo) {
    this.counts.fetched = (this.counts.fetched ?? 0) + 1
    try {
      const car = await askBytes(this.mirror.url, 'com.atproto.sync.getRepo', { did })
      const whole = await readWithAny(car, did, await everyKeyOf(this.network, did))
      Object.assign(repo, { rev: whole.rev, records: whole.records, fetched: true })
    } catch (error) {
      // Hidden in the meantime, or the mirror is down just now: the state that counts
      // is compared at the end of each phase, and this is seen there.
      repo.missed = error.message
    }
  }

  async settled(accounts, seconds) {
    const expected = new Map()
    for (const account of accounts) {
      if (account.state === 'active') expected.set(account, await readWithAny(await account.car(), account.did, await everyKeyOf(this.network, account.did)))
    }
    await until("the follower's records are those of the hosts", seconds, () => {
      for (const account of accounts) {
        const found = this.repo(account.did)
        if (found.state !== account.state) return `${account.name} (${account.did}) is ${account.state}, the stream said ${found.state}`
        const differs = account.state === 'active' && difference(found.records, expected.get(account).records)
        if (differs) return `${account.name} (${account.did}): ${differs}${found.missed ? ` (a fetch failed: ${found.missed})` : ''}`
      }
    })
  }
}

const described = (event) => event && `${event.$type ?? '?'} number ${event.seq} of ${event.repo ?? event.did} rev ${event.rev}`
