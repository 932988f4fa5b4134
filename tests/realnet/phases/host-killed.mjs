// A host dies in mid-stream, under load, more than once. It may have commits that its
// stream will never tell of.
import { ask } from '../xrpc.mjs'
import { Load } from '../load.mjs'
import { until } from '../wait.mjs'

export const name = 'SIGKILL of a host'
const TIMES = 3

export async function run(world) {
  const { network: { hosts: [one] }, accounts, mirror } = world
  const load = new Load(world.active(one))
  try {
    for (let time = 1; time <= TIMES; time++) {
      // In mid-stream: the mirror hears it, and there is more to come.
      const { cursor } = await mirror.upstream(one)
      await until('the mirror takes in events', 60, async () => {
        const now = (await mirror.upstream(one)).cursor
        return now >= cursor + 40 ? undefined : `its cursor was ${cursor} and is ${now}`
      })
      await one.stop('SIGKILL')
      await one.start()
    }
  } finally {
    await load.stop()
  }
  world.check('people were cut off by the kills', load.refused > 0)
  world.say(`  ${load.done} writes, ${load.refused} refused, ${TIMES} kills`)
  await world.settled(90)

  // Dead between its books. What was told and then lost is given up in the end, and what
  // the listing does not know is kept.
  const [ivan, lena] = [accounts.named('ivan'), accounts.named('lena')]
  const lost = await diesInWrite(world, ivan, 'after the stream')
  world.equal('the host told of a commit and lost it', (await ivan.latest()).cid, lost.before)
  await world.settled(90)
  await ivan.post('another story')
  await world.settled()

  const unlisted = await diesInWrite(world, lena, 'after the repository')
  world.equal('the host kept the commit', (await lena.latest()).cid, unlisted.told)
  const { repos } = await ask(one.url, 'com.atproto.sync.listRepos', { limit: 1000 })
  // What it lists may be older still: it was killed before.
  const listed = repos.find((repo) => repo.did === lena.did).head
  world.check('and does not list it', listed !== unlisted.told, listed)
  await world.settled()
}

// The account writes, the host gets stuck at the point, the mirror hears of the commit,
// the host dies and comes back.
async function diesInWrite({ mirror }, account, point) {
  const { host } = account
  const { cid: before } = await account.latest()
  await host.getStuck(point)
  const write = account.post(`stuck ${point}`).then(() => 'it went through', (error) => error)
  let told
  await until('the mirror hears of the commit', 60, async () => {
    told = (await mirror.repo(account.did)).commit
    return told === before ? 'its head is the old one' : undefined
  })
  await host.stop('SIGKILL')
  if (await write === 'it went through') throw new Error('the host did not get stuck')
  await host.start()
  return { before, told }
}
