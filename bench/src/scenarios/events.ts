// Cost of recording decisions: CPU time of a service per check over HTTP, with the embedded sink over recording off.
// CPU time is that of all threads, because the embedded database has its own, until everything is stored.

import { rmSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { type HttpLoad, httpLoad } from '../http-load.ts'
import { type HttpServer, startServer } from '../http-server.ts'
import { alternate, type Contender, pairedRatio, resultsOf, type Sample, type Samples } from '../measure.ts'
import type { Scenario } from '../report.ts'
import { ADMIN, change, RULE_SET_PATH } from '../rules-node.ts'
import { freshKeys, seeded, zipf } from '../zipf.ts'
import { RULES } from './memory.ts'

const MAIN = fileURLToPath(new URL('../../../packages/server/bin/sluice.js', import.meta.url))
const PATH = '/api/v1/rate-limit/check'
const KEYS = 100_000
const CALLS = 20_000
const CONNECTIONS = 32
/** Times that all nodes are started: equal processes differ by up to 20 %, for as long as they run. */
const STARTS = 3
const FACTS = { endpoint: '/api/v1/messages', method: 'POST', ip_address: '203.0.113.42' }
/** Refusals are always recorded, so there are none: no key comes near its limit. */
const UNREACHED = RULES.map((rule) => ({ ...rule, limit: 1_000_000_000 }))
/** Chooses the clients in the sample: the same ones in each run. */
const KEY_SECRET = 'secret-of-the-benchmark'
/** Batches are built once a second; the last one is written after that. */
const SETTLE_MS = 1200
const IDLE = { ms: 200, cpuUs: 10_000 } as const

const NODES = {
  'recording off': ['--events-sink', 'embedded=off'],
  'sample 0.01': ['--events-sample', '0.01'],
  'sample 1': ['--events-sample', '1'],
} as const
type NodeName = keyof typeof NODES

export const scenario: Scenario = {
  what: 'decision events in the embedded database, CPU time of the server per check over HTTP',
  targets: { recording_cpu_ratio: { atMost: 1.15 }, recording_all_cpu_ratio: { atMost: 1.5 } },
  async run({ rounds = 9 }) {
    const samples: Record<NodeName, Sample[]> = { 'recording off': [], 'sample 0.01': [], 'sample 1': [] }
    for (let start = 0; start < STARTS; start += 1) {
      const more = await measure(Math.ceil(rounds / STARTS))
      for (const name of Object.keys(samples) as NodeName[]) samples[name].push(...more[name])
    }
    const ratio = (name: NodeName, field: string) => pairedRatio(samples[name], samples['recording off'], field)
    return {
      results: [
        ...resultsOf(samples, 'cpu µs', 'µs of CPU/check'),
        ...resultsOf(samples, 'main µs', 'µs of CPU/check, main thread'),
      ],
      ratios: {
        recording_cpu_ratio: ratio('sample 0.01', 'cpu µs'),
        recording_all_cpu_ratio: ratio('sample 1', 'cpu µs'),
        recording_main_thread_ratio: ratio('sample 0.01', 'main µs'),
        recording_all_main_thread_ratio: ratio('sample 1', 'main µs'),
      },
    }
  },
}

async function measure(rounds: number): Promise<Samples<NodeName>> {
  const load = httpLoad(CONNECTIONS)
  try {
    return await withNodes((contenders) => alternate(contenders(load), { rounds, warmups: 2 }))
  } finally {
    load.close()
  }
}

type Contenders = (load: HttpLoad) => Readonly<Record<NodeName, Contender>>

async function withNodes<T>(work: (contenders: Contenders) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-bench-events-'))
  const cleanUp = () => rmSync(folder, { recursive: true, force: true })
  process.once('exit', cleanUp) // when the benchmark is interrupted
  const servers = new Map<NodeName, HttpServer>()
  try {
    for (const [name, args] of Object.entries(NODES) as [NodeName, readonly string[]][]) {
      const own = ['--port', '0', '--data-dir', join(folder, name.replace(' ', '-')), '--drain-ms', '0']
      const server = await startServer(MAIN, [
        ...own,
        '--log-level',
        'error',
        '--key-secret',
        KEY_SECRET,
        ...ADMIN,
        ...args,
      ])
      servers.set(name, server)
      await change(server, 'PUT', RULE_SET_PATH, JSON.stringify(UNREACHED))
    }
    return await work((load) => {
      const entries = [...servers].map(([name, server]) => [name, checks(server, load)] as const)
      return Object.fromEntries(entries) as Record<NodeName, Contender>
    })
  } finally {
    for (const server of servers.values()) await server.stop()
    cleanUp()
  }
}

function checks(server: HttpServer, load: HttpLoad): Contender {
  const choose = zipf(KEYS, seeded(1))
  return {
    async round() {
      const bodies = freshKeys(CALLS, choose).map((client_id) => JSON.stringify({ client_id, ...FACTS }))
      const [cpuUs, mainUs] = [server.cpuUs(), server.mainThreadUs()]
      await load.post(server.address + PATH, bodies)
      await settled(server)
      return { 'cpu µs': (server.cpuUs() - cpuUs) / CALLS, 'main µs': (server.mainThreadUs() - mainUs) / CALLS }
    },
  }
}

/** Resolves when the server does nothing anymore. Nodes without recording wait as long. */
async function settled(server: HttpServer): Promise<void> {
  await delay(SETTLE_MS)
  for (let lastUs = server.cpuUs(); ; lastUs = server.cpuUs()) {
    await delay(IDLE.ms)
    if (server.cpuUs() - lastUs < IDLE.cpuUs) return
  }
}
