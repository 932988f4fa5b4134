// A directory and two hosts, as operators run them: separate processes, on loopback.
import { rmSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { freePorts, start } from './processes.mjs'
import { until } from './wait.mjs'

const servers = join(import.meta.dirname, 'servers')

export class Network {
  static async start(work) {
    const network = new Network()
    network.work = work
    const [plc, one, two, mirror] = await freePorts(4)
    network.mirrorPort = mirror
    network.plc = `http://localhost:${plc}`
    network.directory = await start(work, 'plc', process.execPath, [join(servers, 'plc.mjs'), JSON.stringify({ port: plc })], { channel: true })
    network.hosts = [new Host(network, 'one', one), new Host(network, 'two', two)]
    await Promise.all(network.hosts.map((host) => host.start()))
    return network
  }

  async document(did) {
    const answer = await fetch(`${this.plc}/${did}`)
    if (!answer.ok) throw new Error(`the directory answers ${answer.status} about ${did}`)
    return answer.json()
  }
}

class Host {
  constructor(network, name, port) {
    Object.assign(this, { network, name, port, url: `http://localhost:${port}`, domain: `.${name}.test`, data: join(network.work, name), mails: [] })
  }

  async start({ backfillMs = null } = {}) {
    const peers = Object.fromEntries(this.network.hosts.filter((host) => host !== this).map((host) => [host.domain, host.url]))
    const options = { port: this.port, plc: this.network.plc, data: this.data, name: this.name, peers, backfillMs }
    this.process = await start(this.network.work, `pds-${this.name}`, process.execPath, [join(servers, 'pds.mjs'), JSON.stringify(options)], {
      channel: true,
      environment: { LOG_ENABLED: 'false' },
      hear: ({ mail, stuck }) => { if (mail) this.mails.push(mail); else this.stuck = stuck },
    })
    this.did = this.process.did
    return this.process.seq
  }

  stop(signal) {
    return this.process.stop(signal)
  }

  // The next write gets stuck there; servers/pds.mjs names the points.
  async getStuck(point) {
    this.stuck = undefined
    this.process.child.send({ getStuck: point })
    await until(`${this.name} is prepared to get stuck`, 10, () => (this.stuck === point ? undefined : 'it did not answer'))
  }

  // What the host has written down about its stream goes, and its numbers begin anew:
  // the bad day of an operator who restored all but that file.
  forgetStream() {
    const files = readdirSync(this.data).filter((file) => file.startsWith('sequencer.sqlite'))
    if (files.length === 0) throw new Error(`${this.name} keeps its stream elsewhere`)
    for (const file of files) rmSync(join(this.data, file))
  }

  // The code in the last mail of this kind to this person.
  async code(kind, to) {
    let mail
    await until(`a mail ${kind} to ${to}`, 10, () => {
      mail = this.mails.findLast((sent) => sent.kind === kind && sent.to === to)
      return mail ? undefined : 'none came'
    })
    this.mails.splice(this.mails.indexOf(mail), 1)
    return mail.token
  }
}
