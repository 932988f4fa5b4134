// What every phase gets: the network, the people on it, the mirror, who follows the
// mirror, and where findings go.
export class World {
  constructor(parts) {
    Object.assign(this, parts, { failures: 0, checks: 0 })
  }

  say(text) {
    console.log(`realnet: ${text}`)
  }

  // One thing that must be so; what differed is said at once, and the run goes on.
  check(what, holds, detail = '') {
    this.checks++
    if (holds) return true
    this.failures++
    console.error(`realnet: FAILED ${what}${detail === '' ? '' : `: ${detail}`}`)
    return false
  }

  equal(what, found, expected) {
    const [left, right] = [JSON.stringify(found), JSON.stringify(expected)]
    return this.check(what, left === right, `found ${left}, expected ${right}`)
  }

  // The mirror has what the hosts have, and the follower what the mirror has.
  async settled(seconds = 60) {
    await this.mirror.settled(this.accounts.all, seconds)
    await this.follower.settled(this.accounts.all, seconds)
  }

  active(host) {
    return this.accounts.all.filter((account) => account.state === 'active' && (!host || account.host === host))
  }
}
