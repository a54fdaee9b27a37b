// Time from the start of a process to its first answer: a node with the embedded database (the default), with a rule
// file, and on Redis, against the code before modules were loaded on demand.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { compileEarlierVersion, type EarlierVersion } from '../../../scripts/earlier-version.mjs'
import { startServer } from '../http-server.ts'
import { alternate, type Contender, median, pairedRatio, progress, resultsOf, type Sample } from '../measure.ts'
import { type RedisServer, withRedis } from '../redis-server.ts'
import type { Outcome, Scenario } from '../report.ts'

/** The last commit before the start was measured. It had none of decision events, rollouts, dashboard and gRPC. */
const BEFORE = 'ba379a7'
const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
const MAIN = join(ROOT, 'packages/server/bin/sluice.js')
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
      const baseline = compileEarlierVersion(BEFORE)
      if (baseline === undefined) progress(`this clone does not have the commit ${BEFORE}: nothing to compare with`)
      try {
        return await measure(rounds, redis as RedisServer, baseline) // exactly one
      } finally {
        baseline?.remove()
      }
    }),
}

async function measure(rounds: number, redis: RedisServer, baseline: EarlierVersion | undefined): Promise<Outcome> {
  const folders = new TemporaryFolders()
  const nodes = (main: string, suffix = ''): Record<string, Contender> => ({
    [`embedded database${suffix}`]: node(main, folders.dataDir(), []),
    [`rule file${suffix}`]: node(main, folders.dataDir(), ['--rules', folders.rules]),
    [`Redis${suffix}`]: node(main, folders.dataDir(), [
      ...['--rules', folders.rules, '--redis', `redis://127.0.0.1:${redis.port}`],
    ]),
  })
  try {
    const before = baseline === undefined ? {} : nodes(baseline.main, ', before')
    const samples = await alternate({ ...nodes(MAIN), ...before }, { rounds, warmups: 1 })
    const ratio = (name: string) => pairedRatio(samples[name] ?? [], samples[`${name}, before`] ?? [], 'ms')
    const ms = (name: string) => median((samples[name] ?? []).map(({ ms = Number.NaN }) => ms))
    const against =
      baseline === undefined ? {} : { vs_today: ratio('embedded database'), redis_vs_today: ratio('Redis') }
    return {
      results: [...resultsOf(samples, 'ms', 'ms to the first answer'), ...resultsOf(samples, 'CPU ms', 'ms of CPU')],
      ratios: { first_answer_ms: ms('embedded database'), redis_first_answer_ms: ms('Redis'), ...against },
    }
  } finally {
    folders.remove()
  }
}

class TemporaryFolders {
  readonly #root = mkdtempSync(join(tmpdir(), 'sluice-bench-startup-'))
  readonly rules = join(this.#root, 'rules.yaml')
  #count = 0

  constructor() {
    writeFileSync(this.rules, RULES)
  }

  dataDir(): string {
    this.#count += 1
    return join(this.#root, String(this.#count))
  }

  remove(): void {
    rmSync(this.#root, { recursive: true, force: true })
  }
}

/** Each round starts a process and sends one check. The warm-up creates the embedded database; later rounds open it. */
function node(main: string, dataDir: string, settings: readonly string[]): Contender {
  return {
    async round(): Promise<Sample> {
      const args = ['--port', '0', '--data-dir', dataDir, '--drain-ms', '0', '--log-level', 'warn']
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
      }
    },
  }
}
