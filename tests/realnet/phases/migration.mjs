// A person takes the repository to another host, the documented way: an account with
// the same DID there, the repository, the directory's entry, then the old one goes.
import { pause } from '../wait.mjs'
import { ask, order, upload } from '../xrpc.mjs'

export const name = 'migration between hosts'
const A_STEP_MS = 600

export async function run(world) {
  const { network: { hosts: [one, two] }, accounts, mirror } = world
  const [boris, clara, emil] = ['boris', 'clara', 'emil'].map((person) => accounts.named(person))

  // Boris moves, and writes at once; Emil moves the other way, and stays silent for a
  // while: the head that his new host serves is still signed with the old key.
  await move(boris, two)
  await boris.post('a new home')
  await move(emil, one)
  await world.settled()
  world.check('the mirror noticed the moves', await mirror.metric('gapless_moves_total') >= 2)
  await emil.post('here, too')
  await boris.put('com.example.note', 'moved', { n: 1 })
  await world.settled()

  // Clara moves there and back, with a pause before each step, so that the mirror receives,
  // and asks about, each step separately. Clara has just closed and reopened her account, too.
  await move(clara, two, A_STEP_MS)
  await clara.post('over there')
  await world.settled()
  await move(clara, one, A_STEP_MS)
  await clara.post('home')
  await world.settled()
}

async function move(account, to, pace = 0) {
  const { did, host: from, token: before } = account
  const known = account.hosts?.has(to)
  account.hosts = new Set([...(account.hosts ?? []), from, to])
  const auth = await ask(from.url, 'com.atproto.server.getServiceAuth', { aud: to.did, lxm: 'com.atproto.server.createAccount' }, { token: before })
  // A person who lived on the host before still has a deactivated account there.
  const token = known ? await account.enter(to) : (await order(to.url, 'com.atproto.server.createAccount', {
    did, handle: `${account.name}-moved${to.domain}`, email: account.email, password: account.password,
  }, { token: auth.token })).accessJwt
  await pause(pace)
  await upload(to.url, 'com.atproto.repo.importRepo', await account.car(from.url), 'application/vnd.ipld.car', { token })

  const wanted = await ask(to.url, 'com.atproto.identity.getRecommendedDidCredentials', {}, { token })
  await order(from.url, 'com.atproto.identity.requestPlcOperationSignature', undefined, { token: before })
  const code = await from.code('sendPlcOperation', account.email)
  const { operation } = await order(from.url, 'com.atproto.identity.signPlcOperation', { ...wanted, token: code }, { token: before })
  await pause(pace)
  await order(to.url, 'com.atproto.identity.submitPlcOperation', { operation }, { token })
  await pause(pace)
  await order(to.url, 'com.atproto.server.activateAccount', undefined, { token })
  await pause(pace)
  await order(from.url, 'com.atproto.server.deactivateAccount', {}, { token: before })
  await pause(pace)
  Object.assign(account, { host: to, token })
}
