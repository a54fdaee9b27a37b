// Time from the start of a process to its first answer: a node with a rule file, in memory and on Redis, against the
// code before its modules were loaded on demand.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Baseline, compileBaseline } from '../baseline.ts'
import { startServer } from '../http-server.ts'
import { alternate, type Contender, median, pairedRatio, progress, resultsOf, type Sample } from '../measure.ts'
import { type RedisServer, withRedis } from '../redis-server.ts'
import type { Outcome, Scenario } from '../report.ts'

/** The last commit that loaded every module and compiled every schema at the start. */
const BEFORE = 'ba379a7'
const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
const MAIN = join(ROOT, 'packages/server/dist/main.js')
/** Rules that both versions can read. */
const RULES = `- { rule_id: demo, endpoint_pattern: /demo, scope: per_user, limit: 5, window_seconds: 10 }
- { rule_id: all, scope: per_ip, limit: 1000, window_seconds: 60, algorithm: sliding_window }
`

export const scenario: Scenario = {
  what: 'first answer of a node after its start',
  targets: { vs_today: { atMost: 0.6 } },
  run: ({ rounds = 7 }) =>
    withRedis(1, async ([redis]) => {
      progress(`compiling ${BEFORE}`)
      const baseline = compileBaseline(BEFORE)
      if (baseline === undefined) progress(`this clone does not have the commit ${BEFORE}: nothing to compare with`)
      try {
        return await measure(rounds, redis as RedisServer, baseline) // exactly one
      } finally {
        baseline?.remove()
      }
    }),
}

async function measure(rounds: number, redis: RedisServer, baseline: Baseline | undefined): Promise<Outcome> {
  const onRedis = ['--redis', `redis://127.0.0.1:${redis.port}`]
  const before: Record<string, Contender> =
    baseline === undefined
      ? {}
      : { 'memory, before': node(baseline.main, []), 'Redis, before': node(baseline.main, onRedis) }
  const now: Record<string, Contender> = { memory: node(MAIN, []), Redis: node(MAIN, onRedis) }
  const samples = await alternate({ ...now, ...before }, { rounds, warmups: 1 })
  const { memory = [], 'memory, before': memoryBefore = [] } = samples
  const ratio = (field: string) => pairedRatio(memory, memoryBefore, field)
  return {
    results: [...resultsOf(samples, 'ms', 'ms to the first answer'), ...resultsOf(samples, 'CPU ms', 'ms of CPU')],
    ratios: {
      first_answer_ms: median(memory.map(({ ms = Number.NaN }) => ms)),
      ...(baseline === undefined ? {} : { vs_today: ratio('ms'), startup_cpu_vs_today: ratio('CPU ms') }),
    },
  }
}

/** Each round starts a process with an empty data folder, and sends one check. */
function node(main: string, settings: readonly string[]): Contender {
  return {
    async round(): Promise<Sample> {
      const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-startup-'))
      const rules = join(folder, 'rules.yaml')
      writeFileSync(rules, RULES)
      const args = ['--port', '0', '--rules', rules, '--data-dir', folder, '--drain-ms', '0', '--log-level', 'warn']
      const startedMs = performance.now()
      const server = await startServer(main, [...args, ...settings])
      try {
        const response = await fetch(`${server.address}/api/v1/rate-limit/check`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify({ client_id: 'first', endpoint: '/demo', method: 'GET' }),
        })
        if (response.status !== 200) throw new Error(`the first answer has status ${response.status}`)
        return { ms: performance.now() - startedMs, 'CPU ms': server.cpuUs() / 1000 }
      } finally {
        await server.stop()
        rmSync(folder, { recursive: true, force: true })
      }
    },
  }
}
