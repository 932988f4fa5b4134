// The tie between a server and the test that started it: a server says over the
// channel that it is ready, and ends when the channel ends, however the test ended.
export const tell = (message) => process.connected && process.send(message)

export function endWithParent(stop) {
  const end = () => Promise.race([stop(), new Promise((resolve) => setTimeout(resolve, 3_000))])
    .then(() => process.exit(0), () => process.exit(1))
  process.once('SIGTERM', end)
  process.once('disconnect', () => process.exit(1))
  // Ctrl-C reaches every process in the terminal; the test decides when servers stop.
  process.on('SIGINT', () => {})
}
