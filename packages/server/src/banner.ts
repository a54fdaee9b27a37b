// What a person sees at the start: the address, the rules in force, and a command to copy that shows them at work.

import { plainRule, type Rule } from 'sluice'
import { CHECK_PATH } from './http/check.ts'
import { VERSION } from './package-facts.ts'

export type BannerFacts = {
  readonly address: string
  readonly store: string
  readonly rulesPlace: string
  readonly rules: readonly Rule[]
}

const ROWS_MAX = 20

export function banner({ address, store, rulesPlace, rules }: BannerFacts): string {
  const enabled = rules.filter((rule) => rule.enabled)
  const request = JSON.stringify(sampleRequest(enabled)).replaceAll("'", "'\\''")
  return [
    `Sluice ${VERSION} listens on ${address}`,
    ...rulesLines({ store, rulesPlace, rules }),
    '',
    'Try it, a few times in a row:',
    '',
    `  curl -s ${address}${CHECK_PATH} -H 'content-type: application/json' -d '${request}'`,
    '',
    '',
  ].join('\n')
}

/** Where counters and rules are, and a table of the rules in force. */
export function rulesLines({ store, rulesPlace, rules }: Omit<BannerFacts, 'address'>): string[] {
  const enabled = rules.filter((rule) => rule.enabled)
  const rows = [['RULE', 'LIMIT', 'COUNTED', 'WHERE'], ...enabled.slice(0, ROWS_MAX).map(rowOf)]
  const more = enabled.length > ROWS_MAX ? [`  … and ${enabled.length - ROWS_MAX} more`] : []
  const where = `Counters: ${store}. Rules: ${rulesPlace}; changes apply within a second.`
  return [where, '', ...aligned(rows), ...more]
}

function rowOf(rule: Rule): string[] {
  const { scope } = plainRule(rule)
  const where = `${rule.method.join(',') || 'any'} ${rule.endpoint_pattern}`
  const notes = rule.mode === 'shadow' ? ' (shadow)' : ''
  return [rule.rule_id, limitsOf(rule) + notes, Array.isArray(scope) ? scope.join('+') : String(scope), where]
}

function limitsOf({ limits, algorithm }: Rule): string {
  if (limits.length === 0) return 'unlimited'
  if (algorithm === 'concurrency') return limits.map(({ limit }) => `${limit} at once`).join(', ')
  return limits.map(({ limit, window_seconds: seconds }) => `${limit}/${windowOf(seconds)}`).join(', ')
}

function windowOf(seconds: number): string {
  const units = { d: 86_400, h: 3600, min: 60 }
  for (const [unit, length] of Object.entries(units)) {
    if (seconds % length === 0) return seconds === length ? unit : `${seconds / length}${unit}`
  }
  return seconds === 1 ? 's' : `${seconds}s`
}

function aligned(rows: readonly (readonly string[])[]): string[] {
  const widths = [0, 1, 2].map((column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  return rows.map((row) => `  ${row.map((text, column) => text.padEnd(widths[column] ?? 0)).join('   ')}`.trimEnd())
}

/** A request that meets the tightest rule: repeated a few times, it shows a refusal. */
function sampleRequest(rules: readonly Rule[]): Readonly<Record<string, string>> {
  const plain = rules.filter(({ mode, when, algorithm, limits }) => {
    return mode === 'enforce' && algorithm !== 'concurrency' && Object.keys(when).length === 0 && smallest(limits) > 0
  })
  const [rule] = plain.sort((a, b) => smallest(a.limits) - smallest(b.limits))
  const facts = rule === undefined ? [] : rule.scope.flatMap((fact) => Object.entries(SAMPLES[fact] ?? {}))
  return {
    client_id: 'you',
    ...Object.fromEntries(facts),
    endpoint: rule === undefined ? '/' : samplePath(rule.endpoint_pattern),
    method: rule?.method[0] ?? 'GET',
    ...(rule?.plan === undefined ? {} : { plan: rule.plan }),
  }
}

const SAMPLES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  ip: { ip_address: '203.0.113.42' },
  api_key: { api_key: 'k_demo' },
  tenant: { tenant: 'acme' },
  plan: { plan: 'free' },
}

function smallest(limits: Rule['limits']): number {
  return Math.min(...limits.map(({ limit }) => limit))
}

/** `/users/:id/**` → `/users/1/1`. */
function samplePath(pattern: string): string {
  return pattern.replace(/\*\*?|:\w+/g, '1')
}
