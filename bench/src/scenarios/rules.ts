// Cost of a check with 10,000 rules relative to 10. A third of the rules have their own path, a third share one path
// and differ in plan, tenant or `when`, a third are wildcards; each request matches one rule of each third, the same in
// both sets. A third contender spreads its requests over all 10,000 rules, so that caches do not help.

import { createLimiter, type Limiter, type Subject } from 'sluice'
import { type Contenders, withIsolated } from '../isolated.ts'
import { alternate, type Contender, pairedRatio, resultsOf, type Sample } from '../measure.ts'
import { LIMIT, WINDOW_SECONDS } from '../peers.ts'
import type { Scenario } from '../report.ts'
import { Stopwatch } from '../stopwatch.ts'
import { freshKeys, freshText, seeded, uniform, zipf } from '../zipf.ts'

const KEYS = 100_000
const USERS_OF_ALL = 30
const CALLS = 50_000
const NAMES = ['10 rules', '10,000 rules', '10,000 rules, requests for all'] as const

export const scenario: Scenario = {
  what: '10,000 rules against 10, three match',
  targets: { rules_10000_over_10: { atMost: 1.5 } },
  async run({ rounds = 11 }) {
    const samples = await withIsolated('./scenarios/rules.js', NAMES, String, (all) =>
      alternate(all, { rounds, warmups: 4 }),
    )
    return {
      results: resultsOf(samples, 'ns', 'ns/check'),
      ratios: {
        rules_10000_over_10: pairedRatio(samples['10,000 rules'], samples['10 rules'], 'ns'),
        rules_10000_spread_over_10: pairedRatio(samples['10,000 rules, requests for all'], samples['10 rules'], 'ns'),
      },
    }
  },
}

export const contenders: Contenders = {
  '10 rules': () => rounds(10, false),
  '10,000 rules': () => rounds(10_000, false),
  '10,000 rules, requests for all': () => rounds(10_000, true),
}

/** Keeps the last decision alive: V8 discards optimized code when a collection finds no object of its shape. */
export let lastAnswer: unknown

type Choice = { readonly path: string; readonly shared: number }

/**
 * Requests use the shared path and one rule there or, with `spread`, all rules in turn. `prepare` changes the limiter
 * first.
 */
export function rounds(count: number, spread: boolean, prepare?: (limiter: Limiter) => void): Contender {
  const limiter = createLimiter({ rules: rulesOf(count) })
  prepare?.(limiter)
  const third = Math.floor(count / 3)
  const random = seeded(2)
  const watch = new Stopwatch()
  // Few users, so that both sides have about the same number of buckets.
  const user = spread ? uniform(USERS_OF_ALL, seeded(1)) : zipf(KEYS, seeded(1))
  const choose = (): Choice => {
    if (!spread) return { path: pathOf(0), shared: 1 }
    if (random() < 0.5) return { path: pathOf(0), shared: Math.floor(random() * third) }
    return { path: pathOf(1 + Math.floor(random() * (third / 2 - 1))), shared: -1 }
  }
  return {
    async round(): Promise<Sample> {
      const subjects = freshKeys(CALLS, user).map((key) => subjectOf(key, choose()))
      globalThis.gc?.()
      let admitted = 0
      watch.start()
      for (const subject of subjects) {
        const decision = limiter.checkSync(subject)
        if (decision?.allowed) admitted += 1
        lastAnswer = decision
      }
      watch.stop()
      for (const subject of subjects.slice(0, 100)) requireThree(limiter.checkSync(subject)?.outcomes.length)
      return { ns: (watch.ownMs * 1e6) / CALLS, admitted: admitted / CALLS }
    },
  }
}

/** A rule of the shared third requires one of three facts; the request has exactly the one that `shared` requires. */
function subjectOf(user: string, { path, shared }: Choice): Subject {
  const value = (kind: number) => freshText(shared >= 0 && shared % 3 === kind ? `value-${shared}` : 'other')
  const attributes = { 'header.x-client': value(2) }
  return { user, method: 'GET', path: freshText(path), plan: value(0), tenant: value(1), attributes }
}

function rulesOf(count: number): object[] {
  const third = Math.floor(count / 3)
  const distinct = Array.from({ length: count - 2 * third }, (_, number) => ({ endpoint_pattern: pathOf(number) }))
  const shared = Array.from({ length: third }, (_, number) => ({ endpoint_pattern: pathOf(0), ...conditionOf(number) }))
  const wild = Array.from({ length: third }, (_, number) => ({ endpoint_pattern: wildOf(number) }))
  return [...distinct, ...shared, ...wild].map((rule, number) => {
    return { rule_id: `rule_${number}`, scope: 'per_user', limit: LIMIT, window_seconds: WINDOW_SECONDS, ...rule }
  })
}

function pathOf(number: number): string {
  return `/v1/things-${number}`
}

function conditionOf(number: number): object {
  const value = `value-${number}`
  return [{ plan: value }, { when: { tenant: value } }, { when: { 'header.x-client': value } }][number % 3] ?? {}
}

/** The shared path matches one wildcard, every other path two, so that each request matches three rules. */
function wildOf(number: number): string {
  return number % 2 === 0 ? `/:version/things-${number / 2}` : `/v1/things-${(number + 1) / 2}/**`
}

function requireThree(rules: number | undefined): void {
  if (rules !== 3) throw new Error(`a request matched ${rules} rules instead of 3`)
}
