// Minutes of load through one and three real Envoys with quotas: requests refused below the limit, and admitted above
// it, per ten seconds. A test of the server, which knows how to start Envoy.

import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Guarantee } from '../guarantees.ts'

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
const TEST = 'packages/server/test/remote/envoy-quotas.test.ts'

export function quotas(seconds: number): Guarantee[] {
  const env = { ...process.env, SLUICE_QUOTA_SECONDS: String(seconds) }
  const args = ['node_modules/vitest/vitest.mjs', 'run', '--project', 'tests', TEST, '-t', 'soak']
  const { status } = spawnSync(process.execPath, args, { cwd: ROOT, env, stdio: 'inherit' })
  return [{ held: status === 0, text: 'Envoys with quotas: all of the limit is admitted, no more, and no less' }]
}
