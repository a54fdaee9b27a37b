// Starts nodes that share a PostgreSQL server, and sends requests to them.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { startPostgres } from 'sluice/testing'
import { type HttpServer, startServer } from './http-server.ts'

const MAIN = fileURLToPath(new URL('../../packages/server/bin/sluice.js', import.meta.url))
const TOKEN = 'token-of-the-benchmark'
export const ADMIN: readonly string[] = ['--admin-token', TOKEN]
export const AUTHORIZATION = { authorization: `Bearer ${TOKEN}` }
export const RULES_PATH = '/api/v1/rate-limit/rules'
export const RULE_SET_PATH = '/api/v1/rate-limit/rule-set'

export async function withNodes<T>(count: number, work: (nodes: readonly HttpServer[]) => Promise<T>): Promise<T> {
  const postgres = await startPostgres()
  const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-rules-'))
  const cleanUp = () => rmSync(folder, { recursive: true, force: true })
  process.once('exit', cleanUp) // when the benchmark is interrupted
  const nodes: HttpServer[] = []
  try {
    const shared = ['--port', '0', '--database', postgres.createDatabase(), '--data-dir', folder, '--drain-ms', '0']
    while (nodes.length < count) {
      nodes.push(await startServer(MAIN, [...shared, '--log-level', 'warn', ...ADMIN]))
    }
    return await work(nodes)
  } finally {
    await Promise.all(nodes.map((node) => node.stop()))
    await postgres.stop()
    cleanUp()
  }
}

/** Changes rules; resolves with the new version of the set or rule. */
export async function change(node: HttpServer, method: string, path: string, body: string, type = 'json') {
  const headers = { ...AUTHORIZATION, 'content-type': `application/${type}` }
  const answer = await fetch(node.address + path, { method, headers, body })
  const text = await answer.text()
  if (!answer.ok) throw new Error(`${method} ${path} returned ${answer.status}: ${text}`)
  return (JSON.parse(text) as { version: number }).version
}

export async function versionOf(node: HttpServer): Promise<number> {
  const answer = await fetch(`${node.address}/readyz`)
  return ((await answer.json()) as { rules_version: number }).rules_version
}

export function percentile(values: readonly number[], percent: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor((sorted.length * percent) / 100))] ?? Number.NaN
}
