// Checks a running test network with the reference TypeScript libraries.
//   node check.mjs URLS.json
// The firehose of every PDS and of the relay is read with full verification
// (DID document from the directory, commit signature, tree proofs); every
// repository is fetched and verified as a whole; both are compared with the
// records that the network's truth names. Exits 1 with what differed.
import { readFileSync } from 'node:fs'
import { Firehose } from '@atproto/sync'
import { IdResolver, MemoryCache } from '@atproto/identity'
import { verifyRepoCar, verifyRecords, cidForRecord } from '@atproto/repo'

const { urls } = JSON.parse(readFileSync(process.argv[2], 'utf8').split('\n')[0])
const failures = []
const fail = (what) => { failures.push(what); if (failures.length <= 20) console.error('foreign: ' + what) }
const get = async (url, init) => {
  const answer = await fetch(url, init)
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${await answer.text()}`)
  return answer
}
const json = async (url, init) => (await get(url, init)).json()
const car = async (url) => new Uint8Array(await (await get(url)).arrayBuffer())
const control = (path, body) => json(urls.control + path, {
  method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body ?? {}),
})
const truth = (path) => json(urls.control + path)
// The plain fetch: the library guards against private addresses, and ours are.
const idResolver = () => new IdResolver({ plcUrl: urls.plc, fetch: globalThis.fetch, didCache: new MemoryCache() })

// The record that ends a stream for us: written last, to an account of each host.
const END = 'com.example.end/last'
async function end(host) {
  const { dids } = await truth('/_truth/dids')
  for (const did of dids) {
    if ((await truth(`/_truth/repo/${encodeURIComponent(did)}`)).host !== host) continue
    await control('/_control/write', { did, writes: [{ action: 'create', path: END, record: { $type: 'com.example.end' } }] })
    return
  }
  throw new Error(`host ${host} has no account`)
}

// Reads one stream from its beginning until every end that belongs to it was seen.
async function follow(name, service, ends) {
  const records = new Map() // did -> Map(path -> cid)
  const counts = {}
  let failed = 0
  let done
  const finished = new Promise((resolve) => { done = resolve })
  const firehose = new Firehose({
    service: service.replace('http', 'ws'),
    idResolver: idResolver(),
    unauthenticatedHandles: true,
    getCursor: () => 0,
    onError: (error) => { failed++; fail(`${name}: ${error.cause?.message ?? error.message}`) },
    handleEvent: async (event) => {
      counts[event.event] = (counts[event.event] ?? 0) + 1
      if (event.event === 'create' || event.event === 'update' || event.event === 'delete') {
        const did = event.did
        if (!records.has(did)) records.set(did, new Map())
        const path = `${event.collection}/${event.rkey}`
        if (event.event === 'delete') records.get(did).delete(path)
        else {
          records.get(did).set(path, event.cid.toString())
          if (path === END && --ends === 0) done()
          const computed = await cidForRecord(event.record)
          if (computed.toString() !== event.cid.toString()) fail(`${name}: record ${path} of ${did} hashes to ${computed}`)
        }
      }
    },
  })
  firehose.start()
  const timeout = setTimeout(() => { fail(`${name}: stuck, ${JSON.stringify(counts)}`); done() }, 120_000)
  await finished
  clearTimeout(timeout)
  await firehose.destroy()
  return { records, counts, failed }
}

const differing = (a, b) => {
  const paths = new Set([...a.keys(), ...b.keys()])
  return [...paths].filter((path) => a.get(path) !== b.get(path))
}

const streams = [...urls.pds.map((url, i) => [`pds${i}`, url, 1]), ...(urls.relay ? [['relay', urls.relay, urls.pds.length]] : [])]
// Changes of every kind, some before the streams are opened and some while they run.
await control('/_control/stir', { count: 300 })
const following = streams.map(([name, url, ends]) => follow(name, url, ends))
await control('/_control/stir', { count: 300 })
for (const host of urls.pds.keys()) await end(host)
const followed = await Promise.all(following)

const resolver = idResolver()
let repos = 0, held = 0, proofs = 0
// One repository: as a CAR, as it came on the streams, and one record's proof.
async function compare(i, url, repo) {
  const did = repo.did
  const key = await resolver.did.resolveAtprotoKey(did)
  const whole = await car(`${url}/xrpc/com.atproto.sync.getRepo?did=${encodeURIComponent(did)}`)
  const verified = await verifyRepoCar(whole, did, key)
  if (verified.commit.rev !== repo.rev || verified.commit.cid.toString() !== repo.head) fail(`${did}: getRepo and listRepos disagree`)
  const fetched = new Map(verified.creates.map((w) => [`${w.collection}/${w.rkey}`, w.cid.toString()]))
  const true_ = new Map(Object.entries(await truth(`/_truth/records/${encodeURIComponent(did)}`)))
  for (const path of differing(fetched, true_)) fail(`${did}: getRepo has another ${path} than the truth`)
  for (const [name, stream] of [[`pds${i}`, followed[i]], ...(urls.relay ? [['relay', followed.at(-1)]] : [])]) {
    for (const path of differing(stream.records.get(did) ?? new Map(), true_)) fail(`${did}: ${name} gave another ${path} than the truth`)
  }
  const [path] = true_.keys()
  if (path) {
    const [collection, rkey] = path.split('/')
    const proof = await car(`${url}/xrpc/com.atproto.sync.getRecord?did=${encodeURIComponent(did)}&collection=${collection}&rkey=${rkey}`)
    const proved = await verifyRecords(proof, did, key)
    if (!proved.some((claim) => `${claim.collection}/${claim.rkey}` === path)) fail(`${did}: the proof of ${path} proves something else`)
    proofs++
  }
  repos++
  held += true_.size
}

for (const [i, url] of urls.pds.entries()) {
  let cursor
  do {
    const page = await json(`${url}/xrpc/com.atproto.sync.listRepos?limit=7` + (cursor ? `&cursor=${encodeURIComponent(cursor)}` : ''))
    for (const repo of page.repos) {
      try {
        await compare(i, url, repo)
      } catch (error) {
        fail(`${repo.did}: ${error.message}`)
      }
    }
    cursor = page.cursor
  } while (cursor)
}

const commits = followed.reduce((sum, stream) => sum + (stream.counts.create ?? 0) + (stream.counts.update ?? 0) + (stream.counts.delete ?? 0), 0)
for (const [n, [name]] of streams.entries()) console.log(`foreign: ${name} ${JSON.stringify(followed[n].counts)}`)
// A check that saw nothing has shown nothing.
for (const kind of ['create', 'update', 'delete', 'identity', 'account', 'sync']) {
  if (!followed.some((stream) => stream.counts[kind] > 0)) fail(`no ${kind} event was seen`)
}
if (repos === 0 || held === 0) fail('no records were compared')
console.log(`foreign: ${commits} operations verified by @atproto/sync on ${streams.length} streams, ${repos} repositories and ${proofs} record proofs by @atproto/repo, ${held} records equal the truth`)
console.log(`foreign: ${failures.length === 0 ? 'all right' : failures.length + ' differences'}`)
process.exit(failures.length === 0 ? 0 : 1)
