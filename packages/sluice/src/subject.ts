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
  /** Units this request is worth: a positive integer, 1 by default. */
  readonly cost?: number | undefined
  /** Anything else a rule may look at: `header.x-client`, `country`, Envoy descriptor entries. */
  readonly attributes?: Readonly<Record<string, string | number | boolean>> | undefined
}

const NAMES: readonly (keyof Subject)[] = [
  ...(['ip', 'user', 'apiKey', 'tenant', 'plan', 'method', 'path', 'cost', 'attributes'] as const),
]

/** Names that the HTTP API and other libraries use. */
const ELSEWHERE: Readonly<Record<string, keyof Subject>> = {
  client_id: 'user',
  clientId: 'user',
  user_id: 'user',
  key: 'user',
  api_key: 'apiKey',
  tenant_id: 'tenant',
  tenantId: 'tenant',
  ip_address: 'ip',
  ipAddress: 'ip',
  address: 'ip',
  endpoint: 'path',
  url: 'path',
  units: 'cost',
  points: 'cost',
}

/**
 * Throws OPTION_INVALID for a fact that does not exist. A rule would take the fact it stands for as missing, and by
 * default limit nothing.
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
    case 'attributes':
      return true
    default:
      return false
  }
}

function unknownFact(name: string, value: unknown): Error {
  const meant = Object.hasOwn(ELSEWHERE, name) ? `; did you mean "${ELSEWHERE[name]}"?` : suggestion(name, NAMES)
  return optionInvalid(`subject.${name}`, value, `unknown field${meant || `; put it into "attributes"`}`)
}
