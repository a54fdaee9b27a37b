// Tests of the server that are too long for `npm test`, or need toolchains of other languages.

import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Guarantee } from '../guarantees.ts'

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
const TESTS = 'packages/server/test'

/** Minutes of load through real Envoys: requests refused below the limit, and admitted above it, per ten seconds. */
export function quotas(seconds: number): Guarantee[] {
  const held = passes({ SLUICE_QUOTA_SECONDS: String(seconds) }, 'remote/envoy-quotas.test.ts', '-t', 'soak')
  return [{ held, text: 'Envoys with quotas: all of the limit is admitted, no more, and no less' }]
}

/** Clients in Go, Java and Python, built with their own tools. */
export function clients(): Guarantee[] {
  const held = passes({ SLUICE_TOOLCHAINS: '1' }, 'grpc/interop.test.ts', 'gateway/real-clients.test.ts')
  return [{ held, text: 'clients in Go, Java and Python get every answer of the gRPC port and the gateway' }]
}

function passes(settings: Readonly<Record<string, string>>, ...args: readonly string[]): boolean {
  const files = args.map((arg) => (arg.endsWith('.ts') ? `${TESTS}/${arg}` : arg))
  const command = ['node_modules/vitest/vitest.mjs', 'run', '--project', 'tests', ...files]
  const env = { ...process.env, ...settings }
  return spawnSync(process.execPath, command, { cwd: ROOT, env, stdio: 'inherit' }).status === 0
}
