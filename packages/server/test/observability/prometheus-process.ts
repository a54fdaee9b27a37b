// A real Prometheus for one test, on a free port, that scrapes a node every second and evaluates the rules of
// deploy/prometheus. Also runs promtool.

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { onTestFinished, vi } from 'vitest'
import { freePort } from '../../../sluice/src/testing/free-port.ts'

export const RULES_FOLDER: string = fileURLToPath(new URL('../../../../deploy/prometheus/', import.meta.url))

export type Sample = { readonly metric: Readonly<Record<string, string>>; readonly value: readonly [number, string] }

export type LoadedRule = { readonly name: string; readonly health: string; readonly lastError?: string }

export type Prometheus = {
  /** Result of an instant query; throws on a syntax error. */
  query(expr: string): Promise<readonly Sample[]>
  /** Rules with their health: `ok`, `err`, or `unknown` before the first evaluation. */
  rules(): Promise<readonly LoadedRule[]>
}

/** `targets`: `host:port` of nodes. Stopped when the test ends. */
export async function startPrometheus(targets: readonly string[]): Promise<Prometheus> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-prometheus-'))
  const listen = `127.0.0.1:${await freePort()}`
  const configuration = {
    global: { scrape_interval: '1s', scrape_timeout: '1s', evaluation_interval: '1s' },
    rule_files: ruleFiles(),
    scrape_configs: [{ job_name: 'sluice', static_configs: [{ targets }] }],
  }
  const file = join(folder, 'prometheus.yml')
  writeFileSync(file, JSON.stringify(configuration)) // JSON is YAML
  const args = [
    `--config.file=${file}`,
    `--storage.tsdb.path=${join(folder, 'data')}`,
    `--web.listen-address=${listen}`,
  ]
  const child = spawn('prometheus', args, { cwd: folder, stdio: ['ignore', 'ignore', 'pipe'] })
  let output = ''
  child.stderr.on('data', (text) => {
    output += text
  })
  const exit = once(child, 'exit')
  onTestFinished(async () => {
    child.kill('SIGKILL') // its data is discarded
    await exit
    rmSync(folder, { recursive: true, force: true })
  })
  const read = async (path: string): Promise<unknown> => {
    const response = await fetch(`http://${listen}${path}`)
    const body = (await response.json()) as { status: string; error?: string; data: unknown }
    if (body.status !== 'success') throw new Error(`${path}: ${body.error}`)
    return body.data
  }
  await vi.waitFor(
    async () => {
      if (child.exitCode !== null) throw new Error(`prometheus exited:\n${output}`)
      const { ok } = await fetch(`http://${listen}/-/ready`)
      if (!ok) throw new Error('prometheus is not ready')
    },
    { timeout: 60_000, interval: 50 },
  )
  return {
    query: async (expr) => {
      return ((await read(`/api/v1/query?query=${encodeURIComponent(expr)}`)) as { result: Sample[] }).result
    },
    rules: async () => ((await read('/api/v1/rules')) as { groups: { rules: LoadedRule[] }[] }).groups.flatMap(rulesOf),
  }
}

/** Paths of all rule files. */
export function ruleFiles(): string[] {
  return readdirSync(RULES_FOLDER)
    .filter((name) => name.endsWith('.rules.yaml'))
    .map((name) => join(RULES_FOLDER, name))
}

/** Runs promtool. Returns its exit code and everything that it printed. */
export function promtool(
  args: readonly string[],
  input = '',
): { readonly code: number | null; readonly output: string } {
  const { status: code, stdout, stderr, error } = spawnSync('promtool', args, { input, encoding: 'utf8' })
  if (error !== undefined) throw new Error('promtool cannot be started; is it installed?', { cause: error })
  return { code, output: stdout + stderr }
}

function rulesOf({ rules }: { rules: LoadedRule[] }): LoadedRule[] {
  return rules
}
