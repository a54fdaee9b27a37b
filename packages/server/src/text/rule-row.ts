// Formats a rule as a table row: id, limits, scope, and method with path.

import { hasPermits, plainRule, type Rule } from 'sluice'

export function ruleRow(rule: Rule): string[] {
  const { scope } = plainRule(rule)
  const where = `${rule.method.join(',') || 'any'} ${rule.endpoint_pattern}`
  const notes = rule.mode === 'shadow' ? ' (shadow)' : ''
  return [rule.rule_id, limitsOf(rule) + notes, Array.isArray(scope) ? scope.join('+') : String(scope), where]
}

function limitsOf({ limits, algorithm }: Rule): string {
  if (limits.length === 0) return 'unlimited'
  if (hasPermits({ algorithm })) return limits.map(({ limit }) => `${limit} at once`).join(', ')
  return limits.map(({ limit, window_seconds: seconds }) => `${limit}/${windowOf(seconds)}`).join(', ')
}

function windowOf(seconds: number): string {
  const units = { d: 86_400, h: 3600, min: 60 }
  for (const [unit, length] of Object.entries(units)) {
    if (seconds % length === 0) return seconds === length ? unit : `${seconds / length}${unit}`
  }
  return seconds === 1 ? 's' : `${seconds}s`
}
