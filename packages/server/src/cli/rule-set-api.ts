// Reads and replaces the rule set of a node.

import { suggestion } from 'sluice'
import { RULE_SET_PATH } from '../http/routes/rule-set.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { EditGuard } from '../rollouts/edit-hooks.ts'
import type { PlainRule, RuleChange } from '../rules/changes.ts'
import { escapedJson } from '../text/escaped.ts'
import { type Api, VersionConflict } from './api.ts'
import { CommandError } from './command.ts'

export type Plan = {
  /** The version that the plan applies to. */
  readonly version: number
  readonly changes: readonly RuleChange[]
}

/** Request that replaces the rule set. */
export type Write = {
  readonly method: 'PUT' | 'POST'
  readonly path: string
  readonly body: string
  readonly type: string
}

export type WriteOptions = {
  readonly ifVersion?: number | undefined
  readonly reason?: string | undefined
  /** Writes without the guard; needs a reason. */
  readonly isOff?: boolean
}

export function replaceWith(text: string, isJson: boolean): Write {
  return { method: 'PUT', path: RULE_SET_PATH, body: text, type: isJson ? 'application/json' : 'application/yaml' }
}

export function rollbackTo(version: number): Write {
  const body = JSON.stringify({ version })
  return { method: 'POST', path: `${RULE_SET_PATH}/rollback`, body, type: 'application/json' }
}

/** Dry run: returns the changes and the version that they apply to. */
export async function planOf(api: Api, write: Write, ifVersion?: number): Promise<Plan> {
  const { version, changes } = await send(api, write, { ifVersion }, { dry_run: 'true' }).catch(
    conflictSays(
      `--if-version: version ${ifVersion} is no longer active; review the rules again with sluice rules plan.`,
    ),
  )
  return { version: changes.length === 0 ? version : version - 1, changes } // a change creates the next version
}

/** `guard` is absent for a rollback, unless it brings back withdrawn rules. */
export type Applied = Plan & { readonly guard?: EditGuard }

/** Applies the write if the version is still that of the plan. Resolves with the new version. */
export function applyWrite(api: Api, write: Write, options: WriteOptions): Promise<Applied> {
  const { reason, isOff, ifVersion } = options
  const query = { ...(reason !== undefined && { reason }), ...(isOff === true && { guard: 'off' }) }
  return send(api, write, options, query).catch(
    conflictSays(`Nothing was written: the rules changed since the plan for version ${ifVersion}; run this again.`),
  )
}

function conflictSays(advice: string): (error: unknown) => never {
  return (error) => {
    throw error instanceof VersionConflict ? new CommandError(`${error.message}\n  ${advice}`, error.exitCode) : error
  }
}

export function ruleSet(api: Api): Promise<{ version: number; rules: readonly PlainRule[] }> {
  return api.get(`${RULE_SET_PATH}?format=json`)
}

/** Throws with the closest id if there is none. */
export async function ruleNamed(api: Api, id: string): Promise<PlainRule> {
  const { rules } = await ruleSet(api)
  const rule = rules.find((one) => one.rule_id === id)
  if (rule !== undefined) return rule
  const known = rules.map((one) => one.rule_id)
  throw new CommandError(`there is no rule ${escapedJson(id)}${suggestion(id, known)}`, EXIT.invalid)
}

async function send(
  api: Api,
  write: Write,
  { ifVersion }: WriteOptions,
  query: Record<string, string>,
): Promise<Applied> {
  const { method, path, body, type } = write
  const match = ifVersion === undefined ? {} : { 'if-match': `"${ifVersion}"` }
  const headers = { 'content-type': type, ...match }
  const { text } = await api.send(method, `${path}?${new URLSearchParams(query)}`, { body, headers })
  return JSON.parse(text) as Applied
}
