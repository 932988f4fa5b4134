// People on the network: what each of them does goes through the public API of the
// host that the person is on, and nothing is written down here that a host can tell.
import { ask, askBytes, order, upload } from './xrpc.mjs'

const POST = 'app.bsky.feed.post'
const now = () => new Date().toISOString()
export const post = (text) => ({ $type: POST, text, createdAt: now() })

export class Accounts {
  constructor() {
    this.all = []
  }

  async create(host, name) {
    const account = new Account(host, name)
    this.all.push(account)
    await account.open()
    return account
  }

  named(name) {
    return this.all.find((account) => account.name === name)
  }
}

export class Account {
  constructor(host, name) {
    Object.assign(this, { host, name, email: `${name}@example.com`, password: `the password of ${name}`, state: 'active' })
  }

  async open() {
    const made = await order(this.host.url, 'com.atproto.server.createAccount', { handle: `${this.name}${this.host.domain}`, email: this.email, password: this.password })
    this.did = made.did
    this.token = made.accessJwt
  }

  // A new session on a host: after a move, or after the host forgot the old one.
  async enter(host = this.host) {
    const session = await order(host.url, 'com.atproto.server.createSession', { identifier: this.did, password: this.password })
    return session.accessJwt
  }

  order(method, body) {
    return order(this.host.url, method, body, { token: this.token })
  }

  write(method, body) {
    return this.order(`com.atproto.repo.${method}`, { repo: this.did, ...body })
  }

  async post(text) {
    const made = await this.write('createRecord', { collection: POST, record: post(text) })
    return made.uri.split('/').at(-1)
  }

  put(collection, rkey, record) {
    return this.write('putRecord', { collection, rkey, record: { $type: collection, ...record }, validate: false })
  }

  remove(collection, rkey) {
    return this.write('deleteRecord', { collection, rkey })
  }

  // `writes`: [action, collection, rkey, value]
  batch(writes) {
    return this.write('applyWrites', {
      validate: false,
      writes: writes.map(([action, collection, rkey, value]) => ({
        $type: `com.atproto.repo.applyWrites#${action}`, collection, rkey, ...(value ? { value: { $type: collection, ...value } } : {}),
      })),
    })
  }

  blob(bytes) {
    return upload(this.host.url, 'com.atproto.repo.uploadBlob', bytes, 'application/octet-stream', { token: this.token })
  }

  async deactivate() {
    await this.order('com.atproto.server.deactivateAccount', {})
    this.state = 'deactivated'
  }

  async reactivate() {
    await this.order('com.atproto.server.activateAccount')
    this.state = 'active'
  }

  async takeDown(applied) {
    const subject = { $type: 'com.atproto.admin.defs#repoRef', did: this.did }
    await order(this.host.url, 'com.atproto.admin.updateSubjectStatus', { subject, takedown: { applied, ref: 'a rule' } }, { basic: 'admin:admin' })
    this.state = applied ? 'takendown' : 'active'
  }

  // As a person does it: by a code that came by mail.
  async leave() {
    await this.order('com.atproto.server.requestAccountDelete')
    const token = await this.host.code('sendAccountDelete', this.email)
    await order(this.host.url, 'com.atproto.server.deleteAccount', { did: this.did, password: this.password, token })
    this.state = 'deleted'
  }

  latest() {
    return ask(this.host.url, 'com.atproto.sync.getLatestCommit', { did: this.did })
  }

  car(url = this.host.url) {
    return askBytes(url, 'com.atproto.sync.getRepo', { did: this.did })
  }
}
