// One node with leases, as a process of its own: it asks for units of several limits at given rates, and tells when it
// was granted some. Units that Redis granted count from Redis' time, units in hand from the moment they are spent.

import { Redis } from 'ioredis'
import { compileLimit } from 'sluice'
import { redisStore } from 'sluice/redis'

const TURN_MS = 5
const store = redisStore(new Redis(process.env.REDIS_URL, { lazyConnect: true }), { deadlineMs: 5000 })
await store.ready()

/** By limit: granted at these times, in microseconds. */
let granted = []
let limits = []
/** Per limit: takes a second. */
let rates = []
let owed = []
let lastMs = performance.now()

function turn() {
  const nowMs = performance.now()
  limits.forEach((limit, index) => {
    owed[index] = Math.min(2000, owed[index] + (rates[index] * (nowMs - lastMs)) / 1000)
    for (; owed[index] >= 1; owed[index] -= 1) void take(limit, index)
  })
  lastMs = nowMs
  setTimeout(turn, TURN_MS)
}

async function take(limit, index) {
  const charge = { limit, owner: 'alice', detail: '', min: 1, max: 1, kind: 'enforce' }
  const taken = await store.take({ charges: [charge] })
  if (!taken.granted) return
  granted[index].push(taken.source === 'store' ? taken.nowUs : (performance.timeOrigin + performance.now()) * 1000)
}

function tell() {
  process.send({ granted, stats: store.stats() })
  granted = limits.map(() => [])
  setTimeout(tell, 20)
}

process.on('message', async (message) => {
  if (message.rates !== undefined) rates = message.rates
  if (message.limits !== undefined) {
    limits = message.limits.map(compileLimit)
    granted = limits.map(() => [])
    owed = limits.map(() => 0)
    lastMs = performance.now()
    turn()
    tell()
  }
  if (message.end) {
    rates = rates.map(() => 0)
    await store.close()
    process.exit(0)
  }
})
process.send({ ready: true })
