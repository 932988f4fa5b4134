// The mirror was away for longer than its host remembers: what it missed is in no
// stream any more, and is found all the same.
import { greeting } from '../probe.mjs'
import { pause, until } from '../wait.mjs'

export const name = 'OutdatedCursor'
const REMEMBERED_MS = 1_000

export async function run(world) {
  const { network: { hosts: [one] }, accounts, mirror } = world
  const before = await mirror.upstream(one)
  await mirror.stop()

  const [anna, ivan] = [accounts.named('anna'), accounts.named('ivan')]
  const gone = await ivan.post('written and deleted while nobody listened')
  for (let i = 0; i < 5; i++) await anna.post(`missed ${i}`)
  await anna.remove('com.example.note', 'same')
  await ivan.remove('app.bsky.feed.post', gone)
  await (await accounts.create(one, 'lena')).post('new, and nobody heard of it')
  await accounts.named('frida').deactivate()

  await one.stop()
  await one.start({ backfillMs: REMEMBERED_MS })
  await pause(REMEMBERED_MS + 200)
  const heard = await greeting(one, before.cursor - 1)
  world.equal('the host does not remember', heard.name, 'OutdatedCursor')

  await mirror.start()
  await until('the reset is noticed', 30, async () => ((await mirror.upstream(one)).epoch > before.epoch ? undefined : 'the epoch is the old one'))
  await world.settled()
  await anna.post('heard again')
  await accounts.named('frida').reactivate()
  await world.settled()
  await one.stop()
  await one.start()
  await anna.post('and after one more restart')
  await world.settled()
}
