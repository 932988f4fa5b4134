// Repositories as the reference library reads them: each CAR is verified as a whole,
// with the key that the directory names.
import { verifyRepoCar } from '@atproto/repo'
import { IdResolver, MemoryCache } from '@atproto/identity'

// The plain fetch: the library's own refuses private addresses, and ours are.
export const resolver = (network) => new IdResolver({ plcUrl: network.plc, fetch: globalThis.fetch, didCache: new MemoryCache() })

export const keyOf = (identities, did) => identities.did.resolveAtprotoKey(did, true)

// After a move and before the next write, a host serves a commit that was signed with
// the key of the host before. The directory remembers all keys; the newest comes first.
export async function everyKeyOf(network, did) {
  const answer = await fetch(`${network.plc}/${did}/log/audit`)
  const keys = (await answer.json()).map(({ operation }) => operation.verificationMethods.atproto)
  return [...new Set(keys.reverse())]
}

export async function readWithAny(car, did, keys) {
  let refused
  for (const key of keys) {
    try {
      return await read(car, did, key)
    } catch (error) {
      refused ??= error
    }
  }
  throw refused
}

export async function read(car, did, key) {
  const verified = await verifyRepoCar(car, did, key)
  const records = new Map(verified.creates.map((write) => [`${write.collection}/${write.rkey}`, write.cid.toString()]))
  return { commit: verified.commit.cid.toString(), rev: verified.commit.rev, records }
}

// The paths at which two sets of records differ, in words.
export function difference(found, expected) {
  const paths = [...new Set([...found.keys(), ...expected.keys()])].filter((path) => found.get(path) !== expected.get(path))
  if (paths.length === 0) return undefined
  const shown = paths.slice(0, 5).map((path) => `${path} is ${found.get(path) ?? 'absent'}, not ${expected.get(path) ?? 'absent'}`)
  return `${paths.length} records differ: ${shown.join('; ')}`
}
