// Exceptions that changed a decision, as explanations and decisions list them, and each in words.

import { effectText } from './override.ts'

export type AppliedException = {
  readonly kind: string
  readonly override_id?: string
  readonly bypass_id?: string
  readonly signal?: string
  /** null: the request as a whole. */
  readonly rule_id: string | null
  readonly limit?: number
  readonly limit_name?: string
  readonly factor?: number
  readonly ban?: { readonly status: number }
  readonly exempt?: true
}

/** `signal credential_stuffing: limits × 0.5, login_per_ip` */
export function exceptionText({ kind, signal, rule_id: rule, ...effect }: AppliedException): string {
  const name = kind === 'signal' ? `signal ${signal}` : kind === 'factor' ? 'global factor' : kind
  return `${name}: ${effectText(effect)}${rule === null ? '' : `, ${rule}`}`
}
