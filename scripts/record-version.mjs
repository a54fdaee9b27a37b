// `npm run record-version`: runs the Redis store of an earlier commit through fixed scenarios on a fake clock, and
// records its scripts, its calls with their replies, its decisions and the values that it wrote. With the recording,
// tests run that version beside today's code without a checkout: packages/sluice/test/recorded/.

import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { Redis } from 'ioredis'
import { compileEarlierVersion, OLD_VERSION } from './earlier-version.mjs'

const FOLDER = fileURLToPath(new URL('../packages/sluice/test/recorded', import.meta.url))
const START_US = Date.UTC(2030, 0, 1) * 1000
const TIMES_MS = [0, 100, 1500, 1500, 3100, 3100, 3200, 5000, 5100, 9000, 10_001, 12_000, 25_000, 25_001]

const rule = (fields) => ({ rule_id: 'one', scope: 'per_user', window_seconds: 10, consistency: 'strict', ...fields })
const PACKED = [
  rule({ rule_id: 'token', algorithm: 'token_bucket', limit: 5, burst: 8 }),
  rule({ rule_id: 'leaky', algorithm: 'leaky_bucket', limit: 4, burst: 6 }),
  rule({ rule_id: 'fixed', algorithm: 'fixed_window', limit: 6 }),
  rule({ rule_id: 'sliding', algorithm: 'sliding_window', limit: 7 }),
]
const LOG = rule({ rule_id: 'log', algorithm: 'sliding_window_log', limit: 5 })
const PERMITS = rule({ rule_id: 'permits', algorithm: 'concurrency', limit: 3 })
const PATH = { endpoint_pattern: '/items/:id', scope: ['user', 'endpoint'] }

/** `edited`: rules from step `editedAt` on. `gives`: steps that return what the step before took. */
const SCENARIOS = [
  ...[...PACKED, LOG, PERMITS].map((one) => ({ name: one.rule_id, rules: [one], gives: [3, 8] })),
  { name: 'several rules of one key', rules: [...PACKED, LOG, PERMITS], gives: [8] },
  { name: 'without gives', rules: PACKED, gives: [] },
  { name: 'a composite key', rules: [rule({ ...PATH, limit: 4 })], gives: [5] },
  { name: 'one bucket for all', rules: [rule({ scope: 'global', limit: 4 })], gives: [] },
  { name: 'addresses', rules: [rule({ scope: 'per_ip', algorithm: 'fixed_window', limit: 4 })], gives: [] },
  ...PACKED.map((one) => ({
    name: `an edit of ${one.rule_id}`,
    rules: [one],
    edited: [{ ...one, limit: one.limit + 5 }],
    editedAt: 6,
    gives: [],
  })),
]

const old = compileEarlierVersion(OLD_VERSION)
if (old === undefined) throw new Error(`this clone does not have the commit ${OLD_VERSION}: git fetch --unshallow`)
const dist = (name) => import(pathToFileURL(join(old.folder, 'packages/sluice/dist', name)).href)
const [{ createLimiter }, { redisStore }, { startRedis, fakeClock }, scripts] = await Promise.all(
  ['index.js', 'redis/index.js', 'testing/index.js', 'redis/scripts.generated.js'].map(dist),
)

/** Commands sent since the last step. */
let calls = []

class RecordedRedis extends Redis {
  duplicate(options) {
    return new RecordedRedis({ ...this.options, ...options })
  }

  sendCommand(command, stream) {
    const isScript = /^eval(sha)?$/i.test(command.name)
    if (isScript) command.promise.then((reply) => calls.push({ args: command.args, reply })).catch(() => {})
    return super.sendCommand(command, stream)
  }
}

const server = await startRedis()
const client = new Redis(server.url)
try {
  const scenarios = []
  for (const scenario of SCENARIOS) scenarios.push(await record(scenario))
  mkdirSync(FOLDER, { recursive: true })
  const recording = { commit: OLD_VERSION, apply: scripts.APPLY.text, scenarios }
  writeFileSync(join(FOLDER, `${OLD_VERSION}.json`), `${JSON.stringify(recording)}\n`)
} finally {
  client.disconnect()
  await server.stop()
  old.remove()
}

async function record(scenario) {
  await client.flushall()
  const clock = fakeClock(START_US)
  const connection = new RecordedRedis(server.url, { lazyConnect: true })
  const limiter = createLimiter({
    rules: scenario.rules,
    version: 1,
    store: redisStore(connection, { leases: false, deadlineMs: 0, clock }),
  })
  const steps = []
  let last
  for (const [index, ms] of TIMES_MS.entries()) {
    if (index === scenario.editedAt) limiter.setRules(scenario.edited, 2)
    clock.set(START_US + ms * 1000)
    calls = []
    const isGive = scenario.gives.includes(index)
    const subject = { user: 'alice', ip: '203.0.113.42', method: 'GET', path: '/items/7', cost: 1 + (index % 2) }
    if (isGive) await limiter.give(last)
    else last = await limiter.check(subject, `request-${index}`)
    const decision = isGive ? undefined : shown(last)
    steps.push({ ms, isGive, subject, decision, calls: calls.map(plainCall), values: await values() })
  }
  await limiter.close()
  connection.disconnect()
  return { ...scenario, steps }
}

// Early versions call fullAfterMs resetAfterMs.
function shown({ allowed, ruleId, limit, remaining, retryAfterMs, resetAfterMs, fullAfterMs = resetAfterMs, delayMs }) {
  return { allowed, ruleId, limit, remaining, retryAfterMs, fullAfterMs, delayMs }
}

function plainCall({ args: [script, ...rest], reply }) {
  if (![scripts.APPLY.sha1, scripts.APPLY.text].includes(String(script))) throw new Error('another script was called')
  return { args: rest.map((one) => Buffer.from(String(one), 'utf8').toString('base64')), reply }
}

async function values() {
  const keys = (await client.keys('*{*')).sort()
  return Promise.all(keys.map(async (key) => [key, (await client.getBuffer(key)).toString('base64')]))
}
