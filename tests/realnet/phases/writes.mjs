// Everything that people write, while the mirror listens.
export const name = 'live writes'

export async function run(world) {
  const { network: { hosts: [one, two] }, accounts, mirror } = world
  const [anna, dora] = [accounts.named('anna'), accounts.named('dora')]
  for (const [host, person] of [[one, 'frida'], [one, 'gustav'], [one, 'henni'], [one, 'ivan'], [two, 'jana'], [two, 'karl']]) {
    await (await accounts.create(host, person)).post('hello')
  }

  // Create, update, delete, create again under the same key.
  const first = await anna.post('first')
  for (let i = 0; i < 3; i++) await anna.put('app.bsky.actor.profile', 'self', { displayName: `Anna ${i}` })
  await anna.remove('app.bsky.feed.post', first)
  for (const person of [anna, dora]) {
    await person.put('com.example.note', 'same', { n: 1 })
    await person.remove('com.example.note', 'same')
    await person.put('com.example.note', 'same', { n: 2 })
  }
  // Two keys with one value; keys of unusual letters; the last record of a collection.
  await anna.put('com.example.note', 'twin-a', { n: 7 })
  await anna.put('com.example.note', 'twin-b', { n: 7 })
  for (const rkey of ['~', '_', 'a:b', 'x'.repeat(512), '-.-']) await dora.put('com.example.note', rkey, { rkey })
  await dora.put('com.example.lonely', 'only', {})
  await dora.remove('com.example.lonely', 'only')

  // Values of every kind that records may have, and a blob.
  const target = await anna.write('createRecord', { collection: 'app.bsky.feed.post', record: { $type: 'app.bsky.feed.post', text: 'äöü 日本語 🦋', createdAt: new Date().toISOString() } })
  const { blob } = await anna.blob(new Uint8Array(5_000).fill(7))
  await anna.put('com.example.kinds', 'all', {
    bytes: { $bytes: 'AAEC' }, link: { $link: target.cid }, file: blob, none: null, yes: true, negative: -5, large: 2 ** 52, list: [1, [2, { three: 3 }], []], '': 'an empty name', 'zz ü': 'a name',
  })
  await anna.put('com.example.kinds', 'long', { text: 'x'.repeat(200_000) })
  // A second follow of the same person replaces the first, in one commit.
  const follow = { $type: 'app.bsky.graph.follow', subject: dora.did, createdAt: new Date().toISOString() }
  for (let i = 0; i < 2; i++) await anna.write('createRecord', { collection: 'app.bsky.graph.follow', record: follow })

  // Batches: of one kind, of all kinds at once, as large as hosts allow, and of nothing.
  const many = Array.from({ length: 200 }, (_, i) => `b${i}`)
  await dora.batch(many.map((rkey) => ['create', 'com.example.batch', rkey, { rkey }]))
  await dora.batch(many.map((rkey, i) => (i % 3 === 0 ? ['delete', 'com.example.batch', rkey] : ['update', 'com.example.batch', rkey, { rkey, again: true }])))
  await dora.batch(many.slice(0, 60).filter((_, i) => i % 3 === 0).map((rkey) => ['create', 'com.example.batch', rkey, { rkey, third: true }]))
  await dora.batch([])
  await anna.batch([['create', 'com.example.batch', 'x', { n: 1 }], ['update', 'com.example.note', 'same', { n: 3 }], ['delete', 'com.example.note', 'twin-a']])

  await anna.order('com.atproto.identity.updateHandle', { handle: `annabel${one.domain}` })
  await Promise.all(world.active().map(async (account) => { for (let i = 0; i < 10; i++) await account.post(`all at once ${i}`) }))
  await world.settled()
  world.check('live commits were applied', await mirror.metric('gapless_events_applied_total') > 100)
}
