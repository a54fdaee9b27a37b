// Key of an override or a signal: the first fact of a rule's scope and its value, as buckets name them.

import type { Rule } from 'sluice'
import { canonicalAddress } from 'sluice/http'
import { ADDRESS_FIX } from '../checks/check-body.ts'
import { HASHED } from '../events/client-key.ts'
import { invalidField } from '../problems/problem.ts'

export type Key = {
  /** `user`, `ip`, `attributes.device`, …; empty with the scope `global`. */
  readonly fact: string
  readonly owner: string
}

/** Facts that a key may start with, besides `attributes.<name>`. Endpoints and methods depend on the matched rule. */
const FACTS: readonly string[] = ['user', 'ip', 'api_key', 'tenant', 'plan']
const ATTRIBUTE = 'attributes.'
export const KEY_FIX =
  'write the fact and its value, such as user:alice, ip:203.0.113.42, tenant:acme, api_key:k_9 or attributes.device:d7'

/** Key for every rule: `user:alice`. Throws a problem if the text is not one. */
export function parseKey(text: string, ipv6Prefix: number): Key {
  const colon = text.indexOf(':')
  const fact = text.slice(0, Math.max(0, colon))
  const isKnown = FACTS.includes(fact) || (fact.startsWith(ATTRIBUTE) && fact.length > ATTRIBUTE.length)
  if (!isKnown || colon === text.length - 1) throw invalidField('key', text, KEY_FIX)
  return { fact, owner: ownerOf(fact, text.slice(colon + 1), text, ipv6Prefix) }
}

/** Key for one rule: the value of the first fact of its scope; empty for a global rule. */
export function keyOfRule(text: string, rule: Rule, ipv6Prefix: number): Key {
  const [fact = ''] = rule.scope
  if (fact === '' && text !== '')
    throw invalidField('key', text, `give "": rule ${rule.rule_id} has one bucket for all clients`)
  if (fact !== '' && text === '')
    throw invalidField('key', text, `give a value of "${fact}", the first fact of the scope of rule ${rule.rule_id}`)
  return { fact, owner: ownerOf(fact, text, text, ipv6Prefix) }
}

/** Refuses the hash that events store in place of a key: no request has it, so an exception would never apply. */
export function requirePlain(key: Key, text: string): Key {
  if (!HASHED.test(key.owner)) return key
  throw invalidField('key', text, 'give the key itself: this is its hash, as events store it, which no request has')
}

export function keyText({ fact, owner }: Key): string {
  return fact === '' ? '' : `${fact}:${owner}`
}

/** Addresses are stored in the form that buckets have: IPv6 addresses by their prefix, `2001:db8::/64`. */
function ownerOf(fact: string, value: string, text: string, ipv6Prefix: number): string {
  if (fact !== 'ip') return value
  const slash = value.indexOf('/')
  const address = canonicalAddress(slash === -1 ? value : value.slice(0, slash), ipv6Prefix)
  if (address === undefined || (slash !== -1 && address !== value)) throw invalidField('key', text, ADDRESS_FIX)
  return address
}
