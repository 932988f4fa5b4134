// People who were there before the mirror was: their repositories are fetched whole.
export const name = 'accounts before the mirror'

export async function run(world) {
  const { network: { hosts: [one, two] }, accounts, mirror } = world
  for (const [host, person] of [[one, 'anna'], [one, 'boris'], [one, 'clara'], [two, 'dora'], [two, 'emil']]) {
    const account = await accounts.create(host, person)
    for (let i = 0; i < 5; i++) await account.post(`before ${i}`)
  }
  await accounts.create(two, 'quiet')
  // Enough keys for a tree with some depth, and long and short ones.
  const key = (i) => (i % 2 === 0 ? `k${i}` : `${'long'.repeat(20)}-${i}`)
  for (let from = 0; from < 600; from += 200) {
    await accounts.named('anna').batch(Array.from({ length: 200 }, (_, i) => ['create', 'com.example.deep', key(from + i), { n: from + i }]))
  }
  await mirror.start()
  world.follower.start()
  await world.settled()
  world.check('what came before the mirror was fetched', await mirror.metric('gapless_snapshots_written_total') > 0)
}
