// Gapless against the reference servers of the AT Protocol.
//   node main.mjs WORK_FOLDER PROGRAM [PYTHON]
// Each phase does something to the network or the mirror, and waits until the mirror
// says of every account what its host says. Then all judges check what the mirror holds.
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { Accounts } from './accounts.mjs'
import { Follower } from './follower.mjs'
import { judge } from './judge.mjs'
import { Mirror } from './mirror.mjs'
import { Network } from './network.mjs'
import { endAll, tail } from './processes.mjs'
import { World } from './world.mjs'
import * as backfill from './phases/backfill.mjs'
import * as writes from './phases/writes.mjs'
import * as lifecycle from './phases/lifecycle.mjs'
import * as migration from './phases/migration.mjs'
import * as outdated from './phases/outdated.mjs'
import * as future from './phases/future.mjs'
import * as hostKilled from './phases/host-killed.mjs'
import * as mirrorKilled from './phases/mirror-killed.mjs'

const PHASES = [backfill, writes, lifecycle, migration, outdated, future, hostKilled, mirrorKilled]

const [work, program, python] = process.argv.slice(2)
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(130))

let world
const begun = Date.now()
const seconds = (since) => ((Date.now() - since) / 1000).toFixed(1)
try {
  const network = await Network.start(work)
  const mirror = new Mirror(network, program)
  const follower = new Follower(network, mirror)
  world = new World({ network, mirror, follower, accounts: new Accounts(), work, python })
  for (const phase of PHASES) {
    const start = Date.now()
    await phase.run(world)
    world.say(`${phase.name}: ${seconds(start)} s, ${follower.news()}`)
  }
  const start = Date.now()
  await judge(world)
  world.say(`judged: ${seconds(start)} s`)
} catch (error) {
  console.error(`realnet: FAILED ${error.stack}`)
  for (const log of readdirSync(work).filter((file) => file.endsWith('.log'))) {
    console.error(`realnet: the end of ${log}:\n${tail(join(work, log), 30)}`)
  }
  process.exitCode = 1
}
endAll()
if (world?.failures > 0) process.exitCode = 1
console.log(`realnet: ${process.exitCode ? `FAILED, ${world?.failures ?? 0} checks of ${world?.checks ?? 0} did not hold` : `all right, ${world.checks} checks`}, ${seconds(begun)} s`)
process.exit()
