// The first message of a host to a client with a cursor: shows that a prepared fault is
// in place before the mirror meets the fault.
import { decodeAll } from '@atproto/lex-cbor'

export function greeting(host, cursor) {
  const url = new URL(`/xrpc/com.atproto.sync.subscribeRepos?cursor=${cursor}`, host.url.replace('http', 'ws'))
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url)
    socket.binaryType = 'arraybuffer'
    const timer = setTimeout(() => { socket.close(); resolve({ name: 'nothing' }) }, 5_000)
    socket.onerror = () => { clearTimeout(timer); reject(new Error(`${url} refused`)) }
    socket.onmessage = ({ data }) => {
      clearTimeout(timer)
      socket.close()
      const [header, body] = [...decodeAll(new Uint8Array(data))]
      resolve({ kind: header.t ?? 'error', name: body.name ?? body.error, seq: body.seq })
    }
  })
}
