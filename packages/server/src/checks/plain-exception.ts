// An exception that changed a decision, with the field names of the API.

import type { AppliedException } from 'sluice'

export type PlainException = {
  readonly kind: AppliedException['kind']
  /** Override and bypass: its id. */
  readonly override_id?: string
  readonly bypass_id?: string
  /** Signal: its kind. */
  readonly signal?: string
  /** null: the request as a whole. */
  readonly rule_id: string | null
  readonly limit?: number
  readonly limit_name?: string
  readonly factor?: number
  readonly ban?: { readonly status: number }
  readonly exempt?: true
}

export function plainException({ kind, id, ruleId, effect }: AppliedException): PlainException {
  const names = { override: { override_id: id }, bypass: { bypass_id: id }, signal: { signal: id }, factor: {} }
  return { kind, ...names[kind], rule_id: ruleId, ...plainEffect(effect) }
}

function plainEffect(effect: AppliedException['effect']) {
  if ('ban' in effect) return { ban: { status: effect.ban } }
  if (!('limit' in effect)) return effect
  return { limit: effect.limit, ...(effect.limitName === undefined ? {} : { limit_name: effect.limitName }) }
}
