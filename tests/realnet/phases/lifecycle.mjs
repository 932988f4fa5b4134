// Accounts come and go: the mirror hides at once what its owner or host hides, and
// shows it again when it may.
export const name = 'account lifecycle'

export async function run(world) {
  const { accounts } = world
  const [clara, frida, gustav, henni, karl] = ['clara', 'frida', 'gustav', 'henni', 'karl'].map((person) => accounts.named(person))

  // There and back, with a write as soon as one may.
  await clara.deactivate()
  await world.settled()
  await hidden(world.mirror, clara)
  await clara.reactivate()
  await clara.post('back again')
  await world.settled()

  await frida.takeDown(true)
  await world.settled()
  await hidden(world.mirror, frida)
  await frida.takeDown(false)
  frida.token = await frida.enter()
  await frida.post('it was a mistake')
  await world.settled()

  // These stay as they are to the end.
  await gustav.takeDown(true)
  await henni.deactivate()
  await karl.leave()
  await world.settled()
  for (const account of [gustav, henni, karl]) await hidden(world.mirror, account)
}

async function hidden(mirror, account) {
  const held = await mirror.repo(account.did)
  if (held.complete) throw new Error(`${account.name} is ${account.state}, and called complete`)
}
