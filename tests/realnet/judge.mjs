// The end: what the mirror holds and serves is compared with what the hosts hold, and
// verified by libraries that we did not write. Each finding names check and account.
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { verifyProofs, verifyRecords } from '@atproto/repo'
import { difference, keyOf, read, resolver } from './repos.mjs'
import { ask, askBytes } from './xrpc.mjs'

const ERRORS = { deactivated: 'RepoDeactivated', takendown: 'RepoTakendown', deleted: 'RepoNotFound' }

export async function judge(world) {
  const { accounts, mirror, follower, network } = world
  const identities = resolver(network)
  const truths = []
  for (const account of accounts.all) {
    if (account.state !== 'active') continue
    const key = await keyOf(identities, account.did)
    const truth = { account, key, ...(await read(await account.car(), account.did, key)) }
    truths.push(truth)
    await each(world, account, () => held(world, truth))
    await each(world, account, () => served(world, truth))
  }
  world.check('several accounts were compared', truths.length >= 5)
  await refuses(world, truths[0])
  const records = truths.reduce((sum, truth) => sum + truth.records.size, 0)
  world.say(`${truths.length} repositories with ${records} records are what their hosts hold, by @atproto/repo`)

  for (const account of accounts.all) await each(world, account, () => told(world, account))
  await listed(world, truths)
  await followed(world, follower)
  python(world, truths)
  world.equal('no task of the mirror had to be started again', await mirror.metric('gapless_task_restarts_total'), 0)
  world.equal('dead letters', (await mirror.ask('/v1/dead')).dead, [])
  world.equal('what the mirror calls an error', mirror.said('ERROR'), [])
}

async function each(world, account, check) {
  try {
    await check()
  } catch (error) {
    world.check(`${account.name} (${account.did})`, false, error.stack)
  }
}

// The judge must refuse damaged input: a CAR with one letter changed, a CAR without its
// last block, and a listing without one record.
async function refuses(world, { account, key, records }) {
  const car = await account.car()
  const changed = car.slice()
  changed[Math.floor(car.length / 2)] ^= 1
  for (const [what, spoilt] of [['a changed', changed], ['a cut', car.slice(0, Math.floor(car.length / 2))]]) {
    const passed = await read(spoilt, account.did, key).then(() => true, () => false)
    world.check(`${what} repository is refused`, !passed)
  }
  world.check('a record too few is seen', difference(new Map([...records].slice(1)), records) !== undefined)
}

// What the mirror says it holds, and that this hashes to the signed root.
async function held(world, { account, commit, rev, records }) {
  const about = `${account.name} (${account.did})`
  const found = await world.mirror.repo(account.did)
  world.equal(`${about}: commit`, found.commit, commit)
  world.equal(`${about}: rev`, found.rev, rev)
  world.equal(`${about}: complete`, found.complete, true)
  world.equal(`${about}: number of records`, found.records, records.size)
  const verdict = await world.mirror.verify(account.did)
  world.equal(`${about}: gapless verify`, { verdict: verdict.verdict, records: verdict.records }, { verdict: 'proven', records: records.size })
}

// What the mirror serves about an active account: the same as the host, provable.
async function served(world, { account, key, commit, rev, records }) {
  const { did } = account
  const about = `${account.name} (${did})`
  const whole = await read(await account.car(world.mirror.url), did, key)
  world.equal(`${about}: getRepo's commit`, whole.commit, commit)
  const differs = difference(whole.records, records)
  world.check(`${about}: getRepo's records`, !differs, differs)
  world.equal(`${about}: getLatestCommit`, await ask(world.mirror.url, 'com.atproto.sync.getLatestCommit', { did }), { cid: commit, rev })
  const status = await ask(world.mirror.url, 'com.atproto.sync.getRepoStatus', { did })
  world.equal(`${about}: getRepoStatus`, { did: status.did, active: status.active, rev: status.rev }, { did, active: true, rev })

  for (const path of some([...records.keys()])) {
    const [collection, rkey] = path.split('/')
    const proof = await askBytes(world.mirror.url, 'com.atproto.sync.getRecord', { did, collection, rkey })
    const proved = await verifyRecords(proof, did, key)
    world.check(`${about}: the proof of ${path}`, proved.some((claim) => `${claim.collection}/${claim.rkey}` === path), `it proves ${JSON.stringify(proved.map((claim) => claim.rkey))}`)
    const [here, there] = await Promise.all([world.mirror, account.host].map(({ url }) => ask(url, 'com.atproto.repo.getRecord', { repo: did, collection, rkey })))
    world.check(`${about}: repo.getRecord of ${path}`, here.cid === there.cid && here.uri === there.uri && same(here.value, there.value), `found ${JSON.stringify(here).slice(0, 500)}, expected ${JSON.stringify(there).slice(0, 500)}`)
  }
  await absent(world, about, did, key)
  await described(world, about, account, records)
}

// That a record is not there is either proved, or said by name.
async function absent(world, about, did, key) {
  const [collection, rkey] = ['com.example.note', 'never-written']
  try {
    const proof = await askBytes(world.mirror.url, 'com.atproto.sync.getRecord', { did, collection, rkey })
    const { verified } = await verifyProofs(proof, [{ collection, rkey, cid: null }], did, key)
    world.equal(`${about}: the proof that a record is absent`, verified.length, 1)
  } catch (error) {
    if (error.error !== 'RecordNotFound') throw error
    world.check(`${about}: a record that is absent`, true)
  }
}

// The listings of records, in the order and the pages of the reference.
async function described(world, about, account, records) {
  const collections = [...new Set([...records.keys()].map((path) => path.split('/')[0]))].sort()
  const description = await ask(world.mirror.url, 'com.atproto.repo.describeRepo', { repo: account.did })
  world.equal(`${about}: describeRepo`, [...description.collections].sort(), collections)
  for (const collection of some(collections)) {
    for (const reverse of [undefined, true]) {
      const [here, there] = await Promise.all([world.mirror, account.host].map(({ url }) => listing(url, account.did, collection, reverse)))
      world.equal(`${about}: listRecords of ${collection}${reverse ? ', reversed' : ''}`, here, there)
    }
  }
}

async function listing(url, repo, collection, reverse) {
  const found = []
  let cursor
  do {
    const page = await ask(url, 'com.atproto.repo.listRecords', { repo, collection, reverse, limit: 50, cursor })
    found.push(...page.records.map((record) => `${record.uri} ${record.cid}`))
    cursor = page.cursor
  } while (cursor)
  return found
}

// Accounts that are not active answer with their state, and nothing else.
async function told(world, account) {
  if (account.state === 'active') return
  const { did, state } = account
  const about = `${account.name} (${did}), ${state}`
  const status = await ask(world.mirror.url, 'com.atproto.sync.getRepoStatus', { did })
  world.equal(`${about}: getRepoStatus`, { active: status.active, status: status.status }, { active: false, status: state })
  const questions = [['sync.getRepo'], ['sync.getLatestCommit'], ['sync.getRecord', { collection: 'app.bsky.feed.post', rkey: 'x' }]]
  for (const [method, query] of questions) {
    const answer = await ask(world.mirror.url, `com.atproto.${method}`, { did, ...query }).then(() => ({ status: 200 }), (error) => error)
    world.equal(`${about}: ${method}`, { status: answer.status, error: answer.error }, { status: 400, error: ERRORS[state] })
  }
}

// The whole listing has every account, with its head or its state.
async function listed(world, truths) {
  const repos = new Map()
  let cursor
  do {
    const page = await ask(world.mirror.url, 'com.atproto.sync.listRepos', { limit: 3, cursor })
    for (const repo of page.repos) {
      world.check(`listRepos names ${repo.did} once`, !repos.has(repo.did))
      repos.set(repo.did, repo)
    }
    cursor = page.cursor
  } while (cursor)
  for (const { account, commit, rev } of truths) {
    const { head, rev: listedRev, active } = repos.get(account.did) ?? {}
    world.equal(`listRepos: ${account.name} (${account.did})`, { head, rev: listedRev, active }, { head: commit, rev, active: true })
  }
  for (const account of world.accounts.all) {
    if (account.state !== 'active') world.check(`listRepos: ${account.name} (${account.did}) is not active`, repos.get(account.did)?.active !== true)
  }
}

// The consumer of the stream: no error, everything of every kind, nothing out of order.
async function followed(world, follower) {
  await follower.settled(world.accounts.all, 30)
  for (const error of follower.errors) world.check('@atproto/sync follows without an error', false, error)
  for (const what of follower.disorder) world.check("the mirror's stream is in order", false, what)
  // A check that saw nothing has shown nothing.
  for (const kind of ['create', 'update', 'delete', 'identity', 'account', 'sync']) {
    world.check(`the follower heard a ${kind} event`, follower.counts[kind] > 0, JSON.stringify(follower.counts))
  }
  world.say(`@atproto/sync followed to number ${follower.cursor}: ${JSON.stringify(follower.counts)}, ${follower.errors.length} errors`)
}

function python(world, truths) {
  if (!world.python) {
    world.say('skipped: Python with venv and pip not found; nothing was verified by the Python library')
    return
  }
  const file = join(world.work, 'truths.json')
  writeFileSync(file, JSON.stringify(truths.map(({ account, key, commit, rev, records }) => ({
    name: account.name, did: account.did, key, commit, rev, records: Object.fromEntries(records),
  }))))
  const { status, stdout, stderr } = spawnSync(world.python, [join(import.meta.dirname, 'verify.py'), world.mirror.url, file], { encoding: 'utf8', timeout: 120_000 })
  for (const line of (stdout ?? '').trimEnd().split('\n')) world.say(line)
  world.check('the Python library verifies what is served', status === 0, stderr)
}

// At most three of a list: the first, the last, and one between.
const some = (list) => [...new Set([list[0], list[Math.floor(list.length / 2)], list.at(-1)])].filter((item) => item !== undefined)

// Values alike whatever the order of their fields.
const sorted = (value) => (Array.isArray(value) ? value.map(sorted)
  : value && typeof value === 'object' ? Object.fromEntries(Object.keys(value).sort().map((name) => [name, sorted(value[name])])) : value)
const same = (left, right) => JSON.stringify(sorted(left)) === JSON.stringify(sorted(right))
