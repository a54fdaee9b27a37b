// The facts of one request. How rules read them: rules/condition.ts.

import { optionInvalid } from './errors.ts'
import { suggestion } from './nearest.ts'

/** Facts of one request. All are optional: a rule that needs an absent one follows its `on_missing`. */
export type Subject = {
  readonly ip?: string | undefined
  /** The API's `client_id`. */
  readonly user?: string | undefined
  readonly apiKey?: string | undefined
  readonly tenant?: string | undefined
  readonly plan?: string | undefined
  readonly method?: string | undefined
  /** Path of the request, without the host; a query string is ignored. */
  readonly path?: string | undefined
  /** Units that this request takes from each limit: a positive integer, 1 by default. */
  readonly cost?: number | undefined
  /** Bypass token that the client sent, as sent. Verified by the option `bypass` of the limiter. */
  readonly bypassToken?: string | undefined
  /** Any other fact that rules use: `header.x-client`, `country`, Envoy descriptor entries. */
  readonly attributes?: Readonly<Record<string, string | number | boolean>> | undefined
}

const NAMES: readonly (keyof Subject)[] = [
  ...(['ip', 'user', 'apiKey', 'tenant', 'plan', 'method', 'path', 'cost', 'bypassToken', 'attributes'] as const),
]

/** Names of the cost in other libraries; synonyms of the facts are in nearest.ts. */
const COST_NAMES: readonly string[] = ['units', 'points', 'weight']

/**
 * Throws OPTION_INVALID for an unknown fact. A mistyped one would count as missing, and a rule that needs it would by
 * default not apply.
 */
export function requireKnownFacts(subject: Subject): void {
  for (const name in subject) if (!isKnown(name)) throw unknownFact(name, (subject as Record<string, unknown>)[name])
}

/** A switch: about 10 ns per check, where a Set took 60 ns. */
function isKnown(name: string): boolean {
  switch (name as keyof Subject) {
    case 'user':
    case 'ip':
    case 'method':
    case 'path':
    case 'apiKey':
    case 'tenant':
    case 'plan':
    case 'cost':
    case 'bypassToken':
    case 'attributes':
      return true
    default:
      return false
  }
}

function unknownFact(name: string, value: unknown): Error {
  const meant = COST_NAMES.includes(name) ? '; did you mean "cost"?' : suggestion(name, NAMES)
  return optionInvalid(`subject.${name}`, value, `unknown field${meant || `; put it into "attributes"`}`)
}
