// Decides which test files a run includes and in which order they start.

import { readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** Functions that start another program or the embedded database. `npm run check` skips tests that use them. */
const STARTS_SERVER = new RegExp(
  `\\b(${[
    'start(Redis|RedisCluster|Sentinels|Postgres|Etcd|ClickHouse|Kafka|Prometheus)',
    'usePostgres|describeDatabases|serveEmbedded|emptyDataDir|fillWithEmptyDatabase',
    'spawn|spawnSync|execFile|execFileSync',
  ].join('|')})\\b`,
)

/** Tests whose only child processes are git or a script of this repository. */
const STARTS_NO_SERVER = ['scripts/tidy.test.ts', 'scripts/embed.test.ts']

/** Support modules with such functions, whose importers do not necessarily call them. */
const OPTIONAL_SERVERS = ['databases.ts', 'service.ts']

/** Test files that start servers, directly or through the support modules that they import. */
export function testsWithServers(): string[] {
  const folders = ['packages/sluice', 'packages/server', 'packages/dashboard', 'scripts', 'bench/src', 'fleet/src']
  return folders
    .flatMap((folder) => readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((path) => join(folder, path)))
    .filter((path) => path.endsWith('.test.ts') && !path.includes('node_modules/'))
    .filter((path) => startsServer(path, new Set()))
}

function startsServer(path: string, seen: Set<string>): boolean {
  if (seen.has(path)) return false
  seen.add(path)
  const code = readFileSync(path, 'utf8')
  if (STARTS_NO_SERVER.includes(path)) return false
  if (STARTS_SERVER.test(code)) return true
  const imports = [...code.matchAll(/\bfrom '(\.[^']+\.ts)'/g)].map(([, target = '']) => join(dirname(path), target))
  const support = imports.filter((target) => isSupport(target) && !OPTIONAL_SERVERS.includes(basename(target)))
  return support.some((target) => startsServer(target, seen))
}

function isSupport(path: string): boolean {
  return /^packages\/\w+\/test\//.test(path) || path.startsWith('fleet/')
}

/** Long test files start first, so that none of them is left running alone at the end. */
export class SlowestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification) => {
      const index = SLOWEST.findIndex((path) => moduleId.endsWith(path))
      return index === -1 ? SLOWEST.length : index
    }
    return (await super.sort(files)).toSorted((a, b) => rank(a) - rank(b))
  }
}

/** All that take more than a dozen seconds beside others. */
const SLOWEST = [
  'packages/server/test/kafka.test.ts',
  'packages/server/test/node-workers.test.ts',
  'packages/dashboard/test/dashboard.test.ts',
  'scripts/packages.test.ts',
  'packages/dashboard/test/dashboard-writes.test.ts',
  'packages/server/test/violations.test.ts',
  'packages/server/test/grpc/interop.test.ts',
  'packages/sluice/test/topology/failover.test.ts',
  'fleet/src/fleet.test.ts',
  'packages/sluice/test/fleet/leased.test.ts',
  'packages/server/test/gateway/real-clients.test.ts',
  'packages/sluice/test/topology/cluster-faults.test.ts',
  'packages/server/test/proxies/proxies.test.ts',
  'packages/server/test/fleet.test.ts',
  'scripts/docs.test.ts',
  'packages/server/test/rollouts/rollouts.test.ts',
  'packages/server/test/remote/envoy-quotas.test.ts',
  'packages/server/test/clickhouse-sink.test.ts',
  'packages/server/test/docs.test.ts',
  'packages/server/test/topology.test.ts',
  'packages/server/test/simulate.test.ts',
  'packages/server/test/observability/alert-rules.test.ts',
  'packages/server/test/grpc/fuzz.test.ts',
  'packages/server/test/power-cut.test.ts',
  'packages/sluice/test/regions/regions.test.ts',
  'packages/server/test/database.test.ts',
  'packages/server/test/analytics.test.ts',
  'packages/server/test/demo.test.ts',
  'packages/sluice/test/topology/replica-reads.test.ts',
  'packages/sluice/test/fleet/approximate.test.ts',
  'packages/server/test/rollouts/guide.test.ts',
  'packages/server/test/command.test.ts',
  'packages/server/test/exceptions/fleet.test.ts',
  'packages/server/test/rollouts/guard-simulation.test.ts',
  'packages/sluice/test/topology/cluster.test.ts',
  'packages/server/test/rules-api.test.ts',
  'packages/server/test/telemetry.test.ts',
  'packages/server/test/openapi.test.ts',
  'packages/server/test/cli/operations.test.ts',
  'scripts/examples.test.ts',
  'packages/server/test/rollouts/workers.test.ts',
  'packages/server/test/store-pressure.test.ts',
  'packages/server/test/gateway/slow-clients.test.ts',
  'packages/server/test/clickhouse-analytics.test.ts',
  'packages/server/test/distribution.test.ts',
  'packages/server/test/cli/rollout.test.ts',
]
