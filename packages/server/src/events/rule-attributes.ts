// Attributes of requests that events keep, so that a replay can match rules: those that the active rules use. Others
// may be private.

import type { Limiter, Rule, Subject } from 'sluice'
import type { KeyHash } from '../log.ts'
import { followRules } from '../rules/follow-rules.ts'
import { hashedName } from './client-key.ts'

const FACTS: ReadonlySet<string> = new Set(['ip', 'user', 'api_key', 'tenant', 'plan', 'method', 'endpoint', 'path'])
const PREFIX = 'attributes.'
const JSON_LENGTH_MAX = 2048
/** Credentials are hashed, as API keys are. */
const CREDENTIAL = /authorization|cookie|api[-_]?key|token|secret|password/i

export type KeptAttributes = (subject: Subject) => string | null

/** Follows the active rules. */
export function keptAttributes(limiter: Pick<Limiter, 'rules' | 'version'>, hash: KeyHash): KeptAttributes {
  const activeNames = followRules(limiter, () => [...new Set(limiter.rules.flatMap(attributesOf))])
  return ({ attributes }) => {
    if (attributes === undefined) return null
    const kept = activeNames()
      .filter((name) => attributes[name] !== undefined)
      .map((name) => [
        name,
        CREDENTIAL.test(name) ? hashedName(hash, name, String(attributes[name])) : attributes[name],
      ])
    if (kept.length === 0) return null
    const json = JSON.stringify(Object.fromEntries(kept))
    return json.length > JSON_LENGTH_MAX ? null : json
  }
}

function attributesOf({ when, scope, cost }: Rule): string[] {
  const used = [...Object.keys(when), ...scope, ...(typeof cost === 'string' ? [cost] : [])]
  return used
    .filter((name) => !FACTS.has(name))
    .map((name) => (name.startsWith(PREFIX) ? name.slice(PREFIX.length) : name))
}
