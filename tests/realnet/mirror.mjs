// The program under test: the real binary, which the test asks over HTTP as any client does.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { start, tail } from './processes.mjs'
import { Hopeless, until } from './wait.mjs'

export class Mirror {
  constructor(network, program) {
    Object.assign(this, { network, program, url: `http://127.0.0.1:${network.mirrorPort}`, starts: 0 })
  }

  // Times are short, so that what Gapless does every few minutes happens here, too.
  async start() {
    const { network } = this
    const args = ['run', '--data', join(network.work, 'mirror'), '--bind', `127.0.0.1:${network.mirrorPort}`, '--plc', network.plc,
      '--allow-private', '--sweep-every', '2s', ...network.hosts.flatMap((host) => ['--upstream', `pds=${host.url}`])]
    const environment = { GAPLESS_FETCH_REQUESTS_PER_SECOND: '200', GAPLESS_PLC_REQUESTS_PER_SECOND: '500', GAPLESS_MIN_FREE_DISK: '64MiB', NO_COLOR: '1' }
    this.process = start(network.work, 'gapless', this.program, args, { environment })
    this.starts++
    const { process } = this
    let ended
    process.ended.then((how) => { ended = how })
    await until('Gapless answers', 60, async () => {
      if (ended) throw new Hopeless(`Gapless ended (${ended}):\n${tail(process.log)}`)
      await this.ask('/v1/upstreams')
    })
  }

  stop(signal) {
    return this.process.stop(signal)
  }

  async ask(path) {
    const answer = await fetch(this.url + path, { signal: AbortSignal.timeout(30_000) })
    const body = await answer.json()
    if (!answer.ok) throw Object.assign(new Error(`${path}: ${answer.status} ${body.error}: ${body.message}`), { status: answer.status })
    return body
  }

  repo(did) {
    return this.ask(`/v1/repos/${did}`)
  }

  async verify(did) {
    const answer = await fetch(`${this.url}/v1/repos/${did}/verify`, { method: 'POST', signal: AbortSignal.timeout(60_000) })
    return answer.json()
  }

  async upstream(host) {
    const { upstreams } = await this.ask('/v1/upstreams')
    const found = upstreams.find((upstream) => upstream.url.replace(/\/$/, '') === host.url)
    if (!found) throw new Error(`${host.url} is no upstream: ${upstreams.map((upstream) => upstream.url)}`)
    return found
  }

  async metric(name) {
    const text = await (await fetch(`${this.url}/metrics`)).text()
    return text.split('\n').filter((line) => line.startsWith(name) && /^[{ ]/.test(line.slice(name.length)))
      .reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0)
  }

  // The log lines of a level, and panics.
  said(level) {
    return readFileSync(join(this.network.work, 'gapless.log'), 'utf8').split('\n').filter((line) => line.includes(` ${level} `) || line.includes('panicked'))
  }

  // Resolves when Gapless says of every account what its host says, and calls the
  // active ones complete.
  async settled(accounts, seconds = 60) {
    await until('the mirror has what the hosts have', seconds, async () => {
      for (const account of accounts) {
        const missing = await this.differs(account)
        if (missing) return `${account.name} (${account.did}): ${missing}`
      }
    })
  }

  async differs(account) {
    const held = await this.repo(account.did)
    const why = () => JSON.stringify({ reasons: held.reasons, debt: held.debt, last_error: held.last_error })
    if (held.account !== account.state) return `it is ${account.state}, the mirror says ${held.account}, ${why()}`
    if (account.state !== 'active') return undefined
    const latest = await account.latest()
    if (held.commit !== latest.cid) return `its head is ${latest.rev} ${latest.cid}, the mirror has ${held.rev} ${held.commit}, ${why()}`
    if (held.host !== new URL(account.host.url).host && held.host !== account.host.url) return `it is on ${account.host.url}, the mirror says ${held.host}`
    if (!held.complete) return `the head is right, but it is not complete: ${why()}`
  }
}
