// Import of ten thousand rules: time until they are active, and its effect on the latency of checks on the same node,
// under open-loop load over HTTP. Also measures edits of one rule among ten thousand.

import { setTimeout as delay } from 'node:timers/promises'
import type { HttpServer } from '../http-server.ts'
import { figure, median, progress, resultOf } from '../measure.ts'
import type { Scenario } from '../report.ts'
import { change, percentile, RULE_SET_PATH, RULES_PATH, withNodes } from '../rules-node.ts'

const RULES = 10_000
const CHECKS_PER_SECOND = 300
const WATCH_MS = 3000

export const scenario: Scenario = {
  what: '10,000 rules imported on PostgreSQL, and swapped in under load',
  targets: { import_seconds: { atMost: 5 }, check_p99_during_swap_over_before: { atMost: 1.5 } },
  run: ({ rounds = 5 }) =>
    withNodes(1, async ([node]) => {
      const served = node as HttpServer // exactly one
      const seconds: number[] = []
      const [before, during, edits]: [number[], number[], number[]] = [[], [], []]
      const importSet = (round: number) => change(served, 'PUT', RULE_SET_PATH, yaml(round), 'yaml')
      await importSet(-1) // warms up
      for (let round = 0; round < rounds; round += 1) {
        before.push(await p99While(served, () => delay(WATCH_MS)))
        during.push(await p99While(served, async () => seconds.push(await timed(() => importSet(round)))))
        edits.push(await p99While(served, () => editOneByOne(served, round)))
        const p99 = [before, during, edits].map((values) => figure(values.at(-1) ?? Number.NaN))
        progress(`round ${round + 1}/${rounds}: import ${figure(seconds.at(-1) ?? 0)} s, p99 ${p99.join(' → ')} ms`)
      }
      const ratio = median(during.map((value, round) => value / (before[round] ?? Number.NaN)))
      return {
        results: [
          resultOf('import', seconds, 's'),
          resultOf('checks before, p99', before, 'ms'),
          resultOf('checks during an import, p99', during, 'ms'),
          resultOf('checks during edits, p99', edits, 'ms'),
        ],
        ratios: { import_seconds: median(seconds), check_p99_during_swap_over_before: ratio },
      }
    }),
}

/** Every rule differs from the previous round. */
function yaml(round: number): string {
  const rules = Array.from({ length: RULES }, (_, index) => {
    const where = `endpoint_pattern: /api/v1/service${index % 100}/resource${index}/:id`
    return `- rule_id: rule_${index}\n  ${where}\n  scope: per_user\n  limit: ${1000 + round}\n  window: 1m\n`
  })
  return rules.join('')
}

/** Sequential edits for the duration of the measurement. */
async function editOneByOne(node: HttpServer, round: number): Promise<void> {
  const endMs = performance.now() + WATCH_MS
  for (let edit = 1; performance.now() < endMs; edit += 1) {
    await change(node, 'PATCH', `${RULES_PATH}/rule_0`, JSON.stringify({ limit: 5000 + round * 1000 + edit }))
  }
}

/** Latency of checks, measured from their due time, while `work` runs. */
async function p99While(node: HttpServer, work: () => Promise<unknown>): Promise<number> {
  let done = false
  const working = work().finally(() => {
    done = true
  })
  const times: number[] = []
  const waiting: Promise<void>[] = []
  const startedMs = performance.now()
  while (!done) {
    const dueMs = startedMs + (waiting.length * 1000) / CHECKS_PER_SECOND
    await delay(Math.max(0, dueMs - performance.now()))
    waiting.push(check(node, performance.now(), times))
  }
  await Promise.all([working, ...waiting])
  return percentile(times, 99)
}

async function check(node: HttpServer, sentMs: number, times: number[]): Promise<void> {
  const body = JSON.stringify({ client_id: 'user', endpoint: '/api/v1/service7/resource7/1', method: 'GET' })
  const headers = { 'content-type': 'application/json' }
  const answer = await fetch(`${node.address}/api/v1/rate-limit/check`, { method: 'POST', headers, body })
  await answer.arrayBuffer()
  times.push(performance.now() - sentMs)
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedMs = performance.now()
  await work()
  return (performance.now() - startedMs) / 1000
}
