// The reference PDS.
//   node pds.mjs '{"port":20001,"plc":"http://…","data":"DIR","name":"one","peers":{".two.test":"http://…"},"backfillMs":null}'
// Its data outlives a restart: the keys follow from the name. Mails are not sent but
// told to the test, because codes that prove a person's will are in them.
import './loopback.mjs'
import { createHash } from 'node:crypto'
import { mkdirSync } from 'node:fs'
import http from 'node:http'
import { join } from 'node:path'
import { PDS } from '@atproto/pds'
import { endWithParent, tell } from './parent.mjs'

const { port, plc, data, name, peers, backfillMs } = JSON.parse(process.argv[2])
const domain = `.${name}.test`
const url = `http://localhost:${port}`
const secret = (purpose) => createHash('sha256').update(`${purpose} of ${name}`).digest('hex')
mkdirSync(join(data, 'blobs'), { recursive: true })

const pds = await PDS.fromEnv({
  devMode: true,
  port,
  dataDirectory: data,
  blobstoreDiskLocation: join(data, 'blobs'),
  blobstoreDiskTmpLocation: join(data, 'blobs-on-their-way'),
  // Otherwise every PDS on localhost would have one name.
  serviceDid: `did:web:${name}.test`,
  serviceHandleDomains: [domain],
  didPlcUrl: plc,
  adminPassword: 'admin',
  jwtSecret: secret('sessions'),
  dpopSecret: secret('proofs'),
  plcRotationKeyK256PrivateKeyHex: secret('rotation'),
  inviteRequired: false,
  disableSsrfProtection: true,
  acceptingImports: true,
  rateLimitsEnabled: false,
  repoBackfillLimitMs: backfillMs ?? undefined,
  bskyAppViewUrl: 'https://appview.invalid',
  bskyAppViewDid: 'did:web:appview.invalid',
  modServiceUrl: 'https://moderation.invalid',
  modServiceDid: 'did:web:moderation.invalid',
})

for (const kind of ['sendPlcOperation', 'sendAccountDelete']) {
  pds.ctx.mailer[kind] = async ({ token }, { to }) => { tell({ mail: { kind, to, token } }) }
}

// Handles under .test are in no DNS: the PDS that gave one away is asked, by the handle's name.
const hosts = Object.entries({ [domain]: url, ...peers })
const askHost = (host, handle) => new Promise((resolve, reject) => {
  const request = http.get(new URL('/.well-known/atproto-did', host), { headers: { host: handle } }, (response) => {
    let body = ''
    response.on('data', (chunk) => { body += chunk })
    response.on('end', () => resolve(response.statusCode === 200 ? body.trim() : undefined))
  })
  request.on('error', reject)
})
pds.ctx.idResolver.handle.resolve = async (handle) => {
  const host = hosts.find(([ending]) => handle.endsWith(ending))
  return host ? askHost(host[1], handle) : undefined
}

// On request it gets stuck in the next write, at a point where a death leaves its own
// books in disagreement: once the stream has the commit, and the repository does not;
// once the repository has it, and the listing does not.
const forever = new Promise(() => {})
const stuck = {
  'after the stream': () => {
    const told = pds.ctx.sequencer.sequenceCommit.bind(pds.ctx.sequencer)
    pds.ctx.sequencer.sequenceCommit = async (...commit) => { await told(...commit); await forever }
  },
  'after the repository': () => { pds.ctx.accountManager.updateRepoRoot = () => forever },
}
process.on('message', ({ getStuck }) => {
  stuck[getStuck]()
  tell({ stuck: getStuck })
})

await pds.start()
tell({ ready: true, did: pds.ctx.cfg.service.did, seq: (await pds.ctx.sequencer.curr()) ?? 0 })
endWithParent(() => pds.destroy())
