// Waiting for a condition, with a deadline, and saying what was missing when it passed.
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

// Waiting has no sense any more: ends `until` at once.
export class Hopeless extends Error {}

// `condition` gives undefined when it holds, and else what is still missing. An error
// counts as missing: servers are down on purpose here.
export async function until(what, seconds, condition) {
  const deadline = Date.now() + seconds * 1000
  for (let wait = 20; ; wait = Math.min(wait * 1.5, 250)) {
    let missing
    try {
      missing = await condition()
    } catch (error) {
      if (error instanceof Hopeless) throw error
      missing = error.cause ? `${error.message}: ${error.cause.message}` : error.message
    }
    if (missing === undefined) return
    if (Date.now() > deadline) throw new Error(`after ${seconds} s, ${what} is still not so: ${missing}`)
    await pause(wait)
  }
}
