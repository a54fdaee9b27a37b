// The rule set of a node, as commands read and replace it.

import { RULE_SET_PATH } from '../http/routes/rule-set.ts'
import type { PlainRule, RuleChange } from '../rules/changes.ts'
import type { Api } from './api.ts'

export type Plan = {
  /** The version that it was made for. */
  readonly version: number
  readonly changes: readonly RuleChange[]
}

/** A request that writes the set: which, and with what. */
export type Write = {
  readonly method: 'PUT' | 'POST'
  readonly path: string
  readonly body: string
  readonly type: string
}

export type WriteOptions = { readonly ifVersion?: number | undefined; readonly reason?: string | undefined }

export function replaceWith(text: string, isJson: boolean): Write {
  return { method: 'PUT', path: RULE_SET_PATH, body: text, type: isJson ? 'application/json' : 'application/yaml' }
}

export function rollbackTo(version: number): Write {
  const body = JSON.stringify({ version })
  return { method: 'POST', path: `${RULE_SET_PATH}/rollback`, body, type: 'application/json' }
}

/** What a write would change, and of which version. Changes nothing. */
export async function planOf(api: Api, write: Write, ifVersion?: number): Promise<Plan> {
  const { version, changes } = await send(api, write, { ifVersion }, { dry_run: 'true' })
  return { version: changes.length === 0 ? version : version - 1, changes } // a change makes the next version
}

/** Makes it so, unless the set has another version than the plan was made for. Resolves with the new version. */
export async function carryOut(api: Api, write: Write, options: WriteOptions): Promise<number> {
  const { reason } = options
  return (await send(api, write, options, reason === undefined ? {} : { reason })).version
}

export function ruleSet(api: Api): Promise<{ version: number; rules: readonly PlainRule[] }> {
  return api.get(`${RULE_SET_PATH}?format=json`)
}

async function send(api: Api, write: Write, { ifVersion }: WriteOptions, query: Record<string, string>): Promise<Plan> {
  const { method, path, body, type } = write
  const match = ifVersion === undefined ? {} : { 'if-match': `"${ifVersion}"` }
  const headers = { 'content-type': type, ...match }
  const { text } = await api.send(method, `${path}?${new URLSearchParams(query)}`, { body, headers })
  return JSON.parse(text) as Plan
}
