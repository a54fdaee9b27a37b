// Parses `on_signal` of a rule: how it tightens for keys with an abuse signal.

import { SEVERITIES, SIGNAL_KIND } from './exception.ts'
import type { FieldErrors } from './field-errors.ts'
import { isFields, readOneOf } from './fields.ts'
import type { SignalReaction } from './rule.ts'

export const REACTION_FIELDS: readonly string[] = ['factor', 'min_severity']
const KINDS_MAX = 32
const EXAMPLE = '{ credential_stuffing: { factor: 0.1 } }'

export function readOnSignal(
  fields: Readonly<Record<string, unknown>>,
  scope: readonly string[],
  errors: FieldErrors,
): Record<string, SignalReaction> | undefined {
  const { on_signal: given } = fields
  if (given === undefined) return undefined
  if (!isFields(given)) return errors.add('on_signal', given, `give kinds of signals: ${EXAMPLE}`)
  const kinds = Object.entries(given)
  if (kinds.length === 0 || kinds.length > KINDS_MAX) {
    return errors.add('on_signal', given, `give 1 to ${KINDS_MAX} kinds of signals: ${EXAMPLE}`)
  }
  if (scope.length === 0) {
    return errors.add('on_signal', given, 'add a fact to "scope", or remove it: a signal concerns one key')
  }
  const reactions = kinds.map(([kind, reaction]) => [kind, readReaction(kind, reaction, errors.at('on_signal'))])
  return Object.fromEntries(reactions) // assignment would lose a kind called `__proto__`
}

function readReaction(kind: string, given: unknown, errors: FieldErrors): SignalReaction | undefined {
  if (!SIGNAL_KIND.test(kind)) {
    return errors.add(kind, given, 'name the kind with 1 to 64 characters of a-z, 0-9, "_", "." and "-"')
  }
  if (!isFields(given)) return errors.add(kind, given, 'give { factor }, and min_severity if needed')
  const inside = errors.at(kind)
  for (const name of Object.keys(given)) {
    if (!REACTION_FIELDS.includes(name)) inside.add(name, given[name], 'unknown field; remove it')
  }
  const { factor } = given
  const minSeverity = readOneOf(given, 'min_severity', SEVERITIES, inside)
  if (typeof factor !== 'number' || !(factor > 0 && factor <= 1)) {
    return inside.add('factor', factor, 'give a factor above 0 and at most 1')
  }
  return { factor, ...(minSeverity === undefined ? {} : { min_severity: minSeverity }) }
}
