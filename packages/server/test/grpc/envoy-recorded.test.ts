// Compatibility mode gives the answers that the real envoyproxy/ratelimit gave. `npm run record-ratelimit` recorded
// them.

import { readFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import { Redis } from 'ioredis'
import { memoryStore, type Store } from 'sluice'
import { redisStore } from 'sluice/redis'
import { type FakeClock, type RedisProcess, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readConfig } from '../../src/envoy/config-reader.ts'
import { rateLimitRequestFromJson, rateLimitResponseToJson } from '../../src/envoy/rate-limit-json.ts'
import { requireComplete } from '../../src/envoy/rate-limit-request.ts'
import type { DecideRateLimit, RateLimitOptions } from '../../src/envoy/rate-limit-service.ts'
import { ProblemError } from '../../src/problems/problem.ts'
import { rateLimitOptions } from '../../src/service/open-envoy.ts'
import { readCommand } from '../../src/settings/command-line.ts'
import { rateLimits } from './rate-limit-fixture.ts'

type Environment = Readonly<Record<string, string>>
type Step = { readonly wait: number } | readonly [request: unknown, answer: Record<string, unknown>]
type Case = { readonly name: string; readonly at: number; readonly steps: readonly Step[] }
type Recorded = {
  readonly configs: readonly string[]
  readonly runs: readonly { readonly env: Environment; readonly cases: readonly Case[] }[]
  readonly files: readonly ConfigFile[]
}
/** `error`: why the original rejects the file; else the first status that it answers for `k=v`. */
type ConfigFile = {
  readonly name: string
  readonly domain: string
  readonly text: string
  readonly error?: string
  readonly status?: object
  readonly metadata?: object
}

const RECORDED: Recorded = JSON.parse(
  readFileSync(new URL('../recorded/envoyproxy-ratelimit.json', import.meta.url), 'utf8'),
)

/**
 * Cases with other answers here; the test fails if they have the recorded ones. There is no local cache, so a second
 * limit that goes over in a refused request is reported too.
 */
const DIFFERENT_HERE: readonly string[] = [
  'LOCAL_CACHE_SIZE_IN_BYTES STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT a random mixture',
]

describe.each(['memory', 'redis'] as const)('recorded answers of envoyproxy/ratelimit, %s', (kind) => {
  let redis: RedisProcess | undefined
  let client: Redis | undefined

  beforeAll(async () => {
    if (kind === 'memory') return
    redis = await startRedis()
    client = new Redis(redis.url)
  })

  afterAll(async () => {
    client?.disconnect()
    await redis?.stop()
  })

  const storeOf = (clock: FakeClock): Store => {
    return client === undefined ? memoryStore({ clock }) : redisStore(client, { clock, deadlineMs: 5000 })
  }

  it.for(RECORDED.runs)('$env', async ({ env, cases }) => {
    const different: unknown[] = []
    for (const one of cases) {
      await client?.flushall()
      const { clock, decide } = rateLimits(RECORDED.configs, { ...optionsOf(env), store: storeOf, ruleDomains: [] })
      clock.set(one.at * 1_000_000)
      let difference: object | undefined
      for (const step of one.steps) {
        if ('wait' in step) clock.advanceMs(step.wait * 1000)
        else {
          const [request, recorded] = step
          const answer = await answerTo(request, decide)
          if (!isDeepStrictEqual(answer, recorded)) difference ??= { request, answer, recorded }
        }
      }
      const name = [...Object.keys(env), one.name].join(' ')
      const isKnown = DIFFERENT_HERE.includes(name)
      if ((difference === undefined) === isKnown) different.push({ name, isKnown, ...difference })
    }
    expect(different).toEqual([])
  })
})

/** A copied environment has the same meaning here. */
function optionsOf(env: Environment): RateLimitOptions {
  const command = readCommand(['--envoy-config', '.'], env)
  if (command.kind === 'wrong') throw new Error(JSON.stringify(command))
  return rateLimitOptions(command.settings)
}

/** Accepted by the original, but other parsers read something else. */
const REJECTED_HERE: readonly string[] = [
  'a number with leading zeros',
  'a number with leading zeros and an underscore',
  'two zeros',
  'a merge key after what it would change',
  'a merged limit that is changed in part',
  'two merge keys',
  'a second document',
  'a key twice',
]
/** Rejected by the original, but no parser reads something else. */
const ACCEPTED_HERE: readonly string[] = ['unlimited: "true"', 'unlimited: yEs']

it.for(RECORDED.files)('a file with $name is read as envoyproxy/ratelimit reads it', async (file) => {
  const { findings } = readConfig(file.text)
  const errors = findings.filter(({ severity }) => severity === 'error')
  const isRejected =
    (file.error !== undefined || REJECTED_HERE.includes(file.name)) && !ACCEPTED_HERE.includes(file.name)
  expect(errors.length > 0, JSON.stringify(errors)).toBe(isRejected)
  if (isRejected || file.error !== undefined) return
  const request = { domain: file.domain, descriptors: [{ entries: [{ key: 'k', value: 'v' }] }] }
  const { statuses, dynamicMetadata } = await answerTo(request, rateLimits([file.text], { metadata: true }).decide)
  expect(statuses).toMatchObject([file.status])
  expect(dynamicMetadata?.metadata).toEqual(file.metadata)
})

type Answer = { readonly statuses?: object; readonly dynamicMetadata?: { readonly metadata?: object } }

/** As `POST /json` answers; a request that cannot be decided has its status only. */
async function answerTo(body: unknown, decide: DecideRateLimit): Promise<Answer> {
  try {
    const request = rateLimitRequestFromJson(body)
    requireComplete(request)
    return rateLimitResponseToJson(await decide(request)) as Answer
  } catch (error) {
    if (error instanceof ProblemError) return { status: error.problem.status } as Answer
    throw error
  }
}
