// A host dies in mid-stream, under load, more than once. It may have commits that its
// stream will never tell of.
import { Load } from '../load.mjs'
import { until } from '../wait.mjs'

export const name = 'SIGKILL of a host'
const TIMES = 3

export async function run(world) {
  const { network: { hosts: [one] } } = world
  const load = new Load(world.active(one))
  try {
    for (let time = 1; time <= TIMES; time++) {
      const from = load.done
      await until('people write', 30, () => (load.done > from + 60 ? undefined : `${load.done - from} writes`))
      await one.stop('SIGKILL')
      await one.start()
    }
  } finally {
    await load.stop()
  }
  world.check('people were cut off by the kills', load.refused > 0)
  world.say(`  ${load.done} writes, ${load.refused} refused, ${TIMES} kills`)
  await world.settled(90)
}
