// The reference PLC directory, in memory.
//   node plc.mjs '{"port":20000}'
// The published version answers with the form of DID documents that plc.directory had
// in 2023. Half of the DIDs are answered for in the form of today (Multikey), so that
// both are met.
import './loopback.mjs'
import { createRequire } from 'node:module'
import plc from '@did-plc/server'
import { endWithParent, tell } from './parent.mjs'

const { port } = JSON.parse(process.argv[2])
// The library that the PDS writes operations with: it knows every form of them.
const { validateOperationLog } = createRequire(createRequire(import.meta.url).resolve('@atproto/pds'))('@did-plc/lib')
const database = plc.Database.mock()
const server = plc.PlcServer.create({ db: database, port })

const ofToday = (did) => 'abcdefghijklm'.includes(did.at(-1))
function document(state) {
  return {
    '@context': ['https://www.w3.org/ns/did/v1', 'https://w3id.org/security/multikey/v1', 'https://w3id.org/security/suites/secp256k1-2019/v1'],
    id: state.did,
    alsoKnownAs: state.alsoKnownAs,
    verificationMethod: Object.entries(state.verificationMethods).map(([name, key]) => ({
      id: `${state.did}#${name}`, type: 'Multikey', controller: state.did, publicKeyMultibase: key.replace('did:key:', ''),
    })),
    service: Object.entries(state.services).map(([name, service]) => ({
      id: `#${name}`, type: service.type, serviceEndpoint: service.endpoint,
    })),
  }
}

server.app.get('/:did', async (request, response, next) => {
  const { did } = request.params
  if (!did.startsWith('did:') || !ofToday(did)) return next()
  try {
    const operations = await database.opsForDid(did)
    if (operations.length === 0) return next()
    const state = await validateOperationLog(did, operations)
    if (state === null) return next()
    response.type('application/did+ld+json').send(JSON.stringify(document(state)))
  } catch (error) {
    next(error)
  }
})
// Routes are asked in the order in which they were added: ours goes before theirs.
const routes = server.app._router.stack
routes.splice(routes.findIndex((layer) => layer.name === 'router'), 0, routes.pop())

await server.start()
tell({ ready: true })
endWithParent(() => server.destroy())
