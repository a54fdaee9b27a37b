// A node with rules in a database, and the requests that tests of exceptions send to it.

import type { Database } from '../../src/db/database.ts'
import type { Answer, App } from '../service.ts'
import { ADMIN_TOKEN, RULE_SET, serveDatabase } from '../service.ts'

export type Body = Readonly<Record<string, unknown>>

export async function nodeWith(database: Database, rules: readonly Body[]): Promise<App> {
  const app = await serveDatabase(database)
  await putRules(app, rules)
  return app
}

export function putRules(app: App, rules: readonly Body[]): Promise<Answer> {
  const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' }
  return app.send(RULE_SET, { method: 'PUT', headers, body: JSON.stringify({ rules }) })
}

export function remove(app: App, path: string, token = ADMIN_TOKEN): Promise<Answer> {
  return app.send(path, { method: 'DELETE', headers: { authorization: `Bearer ${token}` } })
}

/** Number of admitted requests. */
export async function admitted(app: App, body: Body, sent = 5): Promise<number> {
  let count = 0
  for (let index = 0; index < sent; index += 1) if ((await app.check(body)).allowed) count += 1
  return count
}

/** Creates an API token with a role, and returns it. */
export async function tokenOf(app: App, role: string): Promise<string> {
  const { body } = await app.post('/api/v1/admin/tokens', { name: `a ${role}`, role }, ADMIN_TOKEN)
  return String(body.token)
}

/** Entries of the audit log, newest first. */
export async function audited(app: App, action: string): Promise<readonly Body[]> {
  return (await app.get(`/api/v1/admin/audit?action=${action}`)).body.entries as readonly Body[]
}

export async function metricOf(app: App, name: string): Promise<number> {
  const text = String((await app.get('/metrics')).body.text)
  const line = text.split('\n').find((one) => one.startsWith(`${name} `))
  return Number(line?.slice(name.length + 1))
}
