// A node on PostgreSQL, beside nodes of other versions as the database shows them.

import pg from 'pg'
import { onTestFinished } from 'vitest'
import { FEATURES } from '../../src/fleet/features.ts'
import { temporaryFolder } from '../databases.ts'
import { ADMIN_TOKEN, type Answer, type Client, RULE_SET, serveSettings } from '../service.ts'

export type Node = Client & { readonly database: pg.Client }

/** Other fields of a report. */
const STATE = { status: 'ready', reasons: [], alerts: [], figures: [] }
const RULE = { rule_id: 'two', scope: 'per_user', limit: 2, window: '1d', consistency: 'strict' }

/** A node with one rule, and a connection to its database. */
export async function nodeOn(url: string, guardEditsMs = 0): Promise<Node> {
  const node = await serveSettings({ database: url, dataDir: temporaryFolder(), guardEditsMs })
  const database = await connect(url)
  await write(node, 'PUT', RULE_SET, { rules: [RULE] })
  return { ...node, database }
}

export async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, application_name: 'sluice' })
  client.on('error', () => {}) // a test may terminate it
  await client.connect()
  onTestFinished(() => client.end())
  return client
}

export function write(
  { send }: Client,
  method: string,
  path: string,
  body: object,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const all = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json', ...headers }
  return send(path, { method, headers: all, body: JSON.stringify(body) })
}

/** Writes the report of another node. `understands` undefined: it is of a version that does not report it. */
export async function report(
  { database }: Node,
  node: string,
  understands: readonly string[] | undefined,
  age = '-9 seconds', // so that a slow test does not outlive it
): Promise<void> {
  const text = JSON.stringify({ node, address: `http://${node}:8080`, version: '0.0.9', understands, ...STATE })
  await database.query(
    `INSERT INTO nodes (process, reported_at, report) VALUES ($1, now() - $3::interval, $2)
     ON CONFLICT (process) DO UPDATE SET reported_at = excluded.reported_at, report = excluded.report`,
    [node, text, age],
  )
}

export function without(...features: readonly string[]): string[] {
  return FEATURES.filter((feature) => !features.includes(feature))
}
