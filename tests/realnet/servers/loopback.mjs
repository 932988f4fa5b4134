// Imported before a server: whatever it listens on, it listens on loopback alone.
// The reference servers name a port and no address, which would be all addresses.
import net from 'node:net'

const listen = net.Server.prototype.listen
net.Server.prototype.listen = function (port, ...rest) {
  const callback = rest.find((argument) => typeof argument === 'function')
  const options = typeof port === 'object' ? port : { port: Number(port) }
  return listen.call(this, { ...options, host: '127.0.0.1' }, callback)
}
