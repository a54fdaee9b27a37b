// A rolling upgrade: nodes of an earlier version and of this one share buckets in Redis. The earlier version is played
// by its recorded scripts, calls and values (scripts/record-version.mjs).

import { readdirSync, readFileSync } from 'node:fs'
import { Redis } from 'ioredis'
import { createLimiter, type Limiter, type RulesInput, type Subject } from 'sluice'
import { redisStore } from 'sluice/redis'
import { type FakeClock, fakeClock, type RedisProcess, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { BARE } from './support/bare.ts'

type Step = {
  readonly ms: number
  /** Returns what the step before took; otherwise a check. */
  readonly isGive: boolean
  readonly subject: Subject
  readonly decision?: Readonly<Record<string, unknown>>
  /** Calls of the script: number of keys, keys and arguments, in base64. */
  readonly calls: readonly { readonly args: readonly string[]; readonly reply: unknown }[]
  /** All values after the step. */
  readonly values: readonly (readonly [key: string, value: string])[]
}
type Scenario = {
  readonly name: string
  readonly rules: RulesInput
  /** Rules from step `editedAt` on. */
  readonly edited?: RulesInput
  readonly editedAt?: number
  readonly steps: readonly Step[]
}
type Recording = { readonly commit: string; readonly apply: string; readonly scenarios: readonly Scenario[] }

const FOLDER = new URL('recorded/', import.meta.url)
const RECORDINGS = readdirSync(FOLDER).map(
  (name) => JSON.parse(readFileSync(new URL(name, FOLDER), 'utf8')) as Recording,
)
const START_US = fakeClock().nowUs()

let redis: RedisProcess
let client: Redis
beforeAll(async () => {
  redis = await startRedis()
  client = new Redis(redis.url)
})
beforeEach(() => client.flushall())
afterAll(async () => {
  client.disconnect()
  await redis.stop()
})

/** This version, from step `from` to the step before `to`. Returns its decisions. */
async function runSteps(scenario: Scenario, from: number, to: number): Promise<unknown[]> {
  const clock = fakeClock()
  const store = redisStore(new Redis(redis.url, { lazyConnect: true }), { ...BARE, clock })
  const { rules, edited, editedAt = Number.POSITIVE_INFINITY } = scenario
  const isEdited = from >= editedAt
  const limiter = createLimiter({ rules: isEdited ? (edited ?? []) : rules, version: isEdited ? 2 : 1, store })
  try {
    const decisions: unknown[] = []
    let last: Awaited<ReturnType<Limiter['check']>> | undefined
    for (let index = from; index < to; index += 1) {
      const { ms, isGive, subject } = stepAt(scenario, index)
      if (index === editedAt && edited !== undefined) limiter.setRules(edited, 2)
      at(clock, ms)
      if (isGive && last !== undefined) await limiter.give(last)
      else last = await limiter.check(subject, `request-${index}`)
      decisions.push(isGive ? undefined : last)
    }
    return decisions
  } finally {
    await limiter.close()
  }
}

function at(clock: FakeClock, ms: number): void {
  clock.set(START_US + ms * 1000)
}

function stepAt({ steps }: Scenario, index: number): Step {
  const step = steps[index]
  if (step === undefined) throw new Error(`there is no step ${index}`)
  return step
}

function binary(text: string): Buffer {
  return Buffer.from(text, 'base64')
}

/** Places where one version may take over from the other: a give needs the decision before it. */
function changeovers({ steps }: Scenario): number[] {
  return steps.flatMap(({ isGive }, index) => (index === 0 || isGive ? [] : [index]))
}

describe.each(RECORDINGS)('recorded version $commit', ({ apply, scenarios }) => {
  test.each(scenarios)('$name: this version continues its values and decides as it did', async (scenario) => {
    for (const change of changeovers(scenario)) {
      await client.flushall()
      for (const [key, value] of stepAt(scenario, change - 1).values) await client.set(key, binary(value))
      const decided = await runSteps(scenario, change, scenario.steps.length)
      const expected = scenario.steps.slice(change).map(({ decision }) => decision)
      for (const [index, decision] of expected.entries()) {
        if (decision === undefined) continue
        expect(decided[index], `changed over at step ${change}, then step ${change + index}`).toMatchObject(decision)
      }
    }
  })

  test.each(scenarios)('$name: its scripts continue values of this version and reply as they did', async (scenario) => {
    for (const change of changeovers(scenario)) {
      await client.flushall()
      await runSteps(scenario, 0, change)
      for (const [offset, { calls }] of scenario.steps.slice(change).entries()) {
        for (const { args, reply } of calls) {
          const replied = await client.callBuffer('EVAL', apply, ...args.map(binary))
          expect(replied, `changed over at step ${change}, then step ${change + offset}`).toEqual(reply)
        }
      }
    }
  })
})
