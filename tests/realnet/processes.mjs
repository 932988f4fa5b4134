// Starting and ending what the test needs. Everything that was started is ended with
// the test; the folder `pids` names it for run.sh, should the test itself die.
import { spawn } from 'node:child_process'
import { closeSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import net from 'node:net'
import { join } from 'node:path'

const alive = new Set()
// Variables of this test would be keys of a configuration to Gapless.
const inherited = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('GAPLESS_')))

export const endAll = () => { for (const child of alive) child.kill('SIGKILL') }
process.once('exit', endAll)

// `command` with its output in `work/NAME.log`. With `channel` it is a Node program that
// says { ready: true } and may say more.
export function start(work, name, command, args, { channel = false, environment = {}, hear = () => {} } = {}) {
  const log = join(work, `${name}.log`)
  const output = openSync(log, 'a')
  const child = spawn(command, args, {
    cwd: import.meta.dirname,
    stdio: ['ignore', output, output, ...(channel ? ['ipc'] : [])],
    env: { ...inherited, ...environment },
  })
  closeSync(output)
  alive.add(child)
  const pid = child.pid && join(work, 'pids', `${child.pid}`)
  if (pid) writeFileSync(pid, name)
  const ended = new Promise((resolve) => {
    child.once('error', (error) => { alive.delete(child); resolve(error.message) })
    child.once('exit', (code, signal) => { alive.delete(child); rmSync(pid, { force: true }); resolve(signal ?? `code ${code}`) })
  })
  const running = { name, log, child, ended, stop: (signal = 'SIGTERM') => { child.kill(signal); return ended } }
  if (!channel) return running
  return new Promise((resolve, reject) => {
    child.on('message', (message) => { if (message.ready) resolve({ ...running, ...message }); else hear(message) })
    ended.then((how) => reject(new Error(`${name} ended (${how}) before it was ready:\n${tail(log)}`)))
  })
}

export const tail = (log, lines = 15) => readFileSync(log, 'utf8').trimEnd().split('\n').slice(-lines).join('\n')

// Ports that are free now, and below those that outgoing connections are given: a
// server that is down for a while must get its port back.
export async function freePorts(count) {
  const found = []
  let port = 20_000 + Math.floor(Math.random() * 10_000)
  for (; found.length < count && port < 32_000; port++) {
    const free = await new Promise((resolve) => {
      const probe = net.createServer()
      probe.once('error', () => resolve(false))
      probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)))
    })
    if (free) found.push(port)
  }
  if (found.length < count) throw new Error('no free ports')
  return found
}
