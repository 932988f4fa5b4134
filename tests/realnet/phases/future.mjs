// A host lost its stream and counts from one again: the mirror's cursor is in the
// future, or, worse, in the past of another history.
import { greeting } from '../probe.mjs'
import { until } from '../wait.mjs'

export const name = 'FutureCursor'

export async function run(world) {
  const { network: { hosts: [, two] }, accounts, mirror } = world
  const [dora, jana] = [accounts.named('dora'), accounts.named('jana')]
  const changed = (before) => until('the reset is noticed', 60, async () => {
    const now = await mirror.upstream(two)
    return now.epoch > before.epoch && now.connected ? undefined : `${JSON.stringify(now)}`
  })

  const before = await mirror.upstream(two)
  await two.stop()
  two.forgetStream()
  await two.start()
  const heard = await greeting(two, before.cursor)
  world.equal('the host never counted so far', heard.name, 'FutureCursor')
  await changed(before)
  await dora.post('the first of a new count')
  await world.settled()

  // Again, but while the mirror is away the host counts past where it was.
  const later = await mirror.upstream(two)
  await mirror.stop()
  await two.stop()
  two.forgetStream()
  await two.start()
  await jana.remove('app.bsky.feed.post', await jana.post('never heard'))
  for (let i = 0; i < later.cursor + 10; i++) await dora.post(`counting ${i}`)
  const other = await greeting(two, later.cursor - 1)
  world.equal('the host has another event at the number', { kind: other.kind, seq: other.seq }, { kind: '#commit', seq: later.cursor })
  await mirror.start()
  await changed(later)
  await world.settled()
}
