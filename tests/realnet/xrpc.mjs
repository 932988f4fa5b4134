// Calls of XRPC methods, with errors that say which call and what the host answered.
export class Refused extends Error {
  constructor(method, status, body) {
    super(`${method}: ${status} ${JSON.stringify(body)}`)
    this.status = status
    this.body = body
    this.error = body?.error
  }
}

async function call(host, method, { query = {}, token, basic, ...init } = {}) {
  const url = new URL(`/xrpc/${method}`, host)
  for (const [name, value] of Object.entries(query)) if (value !== undefined) url.searchParams.set(name, value)
  const headers = { ...init.headers }
  if (token) headers.authorization = `Bearer ${token}`
  if (basic) headers.authorization = `Basic ${Buffer.from(basic).toString('base64')}`
  const answer = await fetch(url, { ...init, headers, signal: AbortSignal.timeout(30_000) })
  if (answer.ok) return answer
  const text = await answer.text()
  let body = text
  try { body = JSON.parse(text) } catch { /* not every proxy speaks JSON */ }
  throw new Refused(method, answer.status, body)
}

const parsed = async (answer) => {
  const text = await answer.text()
  return text === '' ? undefined : JSON.parse(text)
}

export const ask = async (host, method, query, more) => parsed(await call(host, method, { query, ...more }))

export const askBytes = async (host, method, query) =>
  new Uint8Array(await (await call(host, method, { query })).arrayBuffer())

export const order = async (host, method, body, more) => parsed(await call(host, method, {
  method: 'POST',
  ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
  ...more,
}))

export const upload = async (host, method, bytes, type, more) => parsed(await call(host, method, {
  method: 'POST', body: bytes, headers: { 'content-type': type }, ...more,
}))
