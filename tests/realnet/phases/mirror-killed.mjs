// The mirror dies in mid-stream, under load, more than once.
import { Load } from '../load.mjs'
import { until } from '../wait.mjs'

export const name = 'SIGKILL of the mirror'
const TIMES = 4

export async function run(world) {
  const { network: { hosts: [one] }, mirror } = world
  const load = new Load(world.active())
  try {
    for (let time = 1; time <= TIMES; time++) {
      // It is in mid-stream: it has taken in something since it started, and there is more.
      const { cursor } = await mirror.upstream(one)
      await until('the mirror takes in events', 30, async () => {
        const now = (await mirror.upstream(one)).cursor
        return now >= cursor + 20 ? undefined : `its cursor was ${cursor} and is ${now}`
      })
      await mirror.stop('SIGKILL')
      await mirror.start()
    }
  } finally {
    await load.stop()
  }
  world.say(`  ${load.done} writes, ${TIMES} kills`)
  world.equal('hosts were up all the time', load.refused, 0)
  await world.settled(90)
}
