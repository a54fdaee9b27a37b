// A node with leases as a process: takes units of several limits at given rates. Records requests, admissions and
// changes of the units on lease, and writes them synchronously, so that nothing is lost when the node is killed.
// Admissions by Redis count from Redis time, admissions from a lease from the time at which the lease store decided.

import { openSync, writeSync } from 'node:fs'
import { Redis } from 'ioredis'
import { compileLimit } from 'sluice'
import { redisStore } from 'sluice/redis'
import { leaseStore } from '../../dist/lease/lease-store.js'

const TURN_MS = 5
const [REQUESTED, ADMITTED, HELD] = [0, 1, 2]
const { REDIS_URL, LEDGER } = process.env

const file = openSync(LEDGER, 'a')
const records = new Float64Array(3 * 4096)
let used = 0

function write() {
  writeSync(file, records, 0, used * records.BYTES_PER_ELEMENT)
  used = 0
}

function record(kind, index, number) {
  records[used] = kind
  records[used + 1] = index
  records[used + 2] = number
  used += 3
  if (kind !== REQUESTED || used === records.length) write()
}

/** Units in flight count as held: they are charged, or will be. */
function counted(store) {
  const indexOf = ({ limit }) => limits.findIndex(({ id }) => id === limit.id)
  return {
    async take(take) {
      for (const charge of take.charges) record(HELD, indexOf(charge), charge.max)
      const taken = await store.take(take)
      take.charges.forEach((charge, at) => {
        record(HELD, indexOf(charge), (taken.grants[at]?.units ?? 0) - charge.max)
      })
      if (taken.source === 'store') for (const give of take.gives ?? []) record(HELD, indexOf(give), -give.units)
      return taken
    },
    async give(gives, opId) {
      await store.give(gives, opId)
      for (const give of gives) record(HELD, indexOf(give), -give.units)
    },
    peek: (charges) => store.peek(charges),
    reset: (bucket) => store.reset(bucket),
    close: () => store.close(),
  }
}

const redis = redisStore(new Redis(REDIS_URL, { lazyConnect: true }), { leases: false, deadlineMs: 5000 })
const store = leaseStore(counted(redis))
await redis.ready()

let limits = []
/** Takes per second, by limit. */
let rates = []
let owed = []
let lastMs = 0
let untilMs = 0

function turn() {
  const nowMs = performance.now()
  limits.forEach((limit, index) => {
    owed[index] = Math.min(2000, owed[index] + (rates[index] * (nowMs - lastMs)) / 1000)
    for (; owed[index] >= 1; owed[index] -= 1) check(limit, index)
  })
  if (used > 0) write()
  lastMs = nowMs
  if (nowMs < untilMs) setTimeout(turn, TURN_MS)
  else process.send({ done: true })
}

function check(limit, index) {
  record(REQUESTED, index, nowUs())
  const charge = { limit, owner: 'alice', detail: '', min: 1, max: 1, kind: 'enforce' }
  const taken = store.take({ charges: [charge] })
  if (taken instanceof Promise) void taken.then((later) => onReply(later, index))
  else onReply(taken, index)
}

// A lease is spent after it was booked, although the local clock, in whole milliseconds, may seem to say otherwise. A
// clock read here would be late if the process was preempted after the decision.
function onReply(taken, index) {
  if (!taken.granted) return
  const [{ bookedUs }] = taken.grants
  record(ADMITTED, index, taken.source === 'store' ? taken.nowUs : Math.max(taken.nowUs, bookedUs))
}

function nowUs() {
  return (performance.timeOrigin + performance.now()) * 1000
}

process.on('message', async (message) => {
  if (message.end) {
    await store.close()
    process.exit(0)
  }
  if (limits.length === 0) {
    limits = message.limits.map(compileLimit)
    owed = limits.map(() => 0)
  }
  rates = message.rates
  lastMs = performance.now()
  untilMs = lastMs + message.ms
  turn()
})
process.send({ ready: true })
