// Checks what the application's own functions return for a request. A mistake there is an OPTION_INVALID, status 500:
// SUBJECT_INVALID, status 400, would blame the client.

import { optionInvalid } from '../errors.ts'
import { canonicalAddress } from '../http/address.ts'
import { isObject } from '../known-fields.ts'
import { COST_MAX } from '../rules/rule-set.ts'
import { requireKnownFacts, type Subject } from '../subject.ts'

const TEXT_FIX = 'must be a text, or undefined; String(id) makes one of a number'
const COST_FIX = `must be a whole number from 1 to ${COST_MAX}`
const ADDRESS_FIX = 'must be an IPv4 or IPv6 address, or undefined'

/** The facts that `subject` returned. */
export function checkedFacts(facts: unknown): Subject | undefined {
  if (facts === undefined || facts === null) return undefined
  if (!isObject(facts)) throw optionInvalid('subject', facts, 'must return an object of facts')
  requireKnownFacts(facts)
  for (const name in facts) {
    const value = facts[name]
    if (value === undefined || value === null) continue
    const field = `subject.${name}`
    if (name === 'cost') checkedCost(field, value)
    else if (name === 'ip') checkedAddress(field, value)
    else if (name === 'attributes') checkAttributes(value)
    else if (typeof value !== 'string') throw optionInvalid(field, value, TEXT_FIX)
  }
  return facts
}

/** The text that `key` returned. The empty text names no client. */
export function checkedKey(key: unknown): string | undefined {
  if (typeof key === 'string') return key === '' ? undefined : key
  if (key === undefined || key === null) return undefined
  throw optionInvalid('key', key, `what it returns ${TEXT_FIX}`)
}

/** The units that `cost` returned. */
export function checkedCost(field: string, cost: unknown): number | undefined {
  if (cost === undefined || (Number.isSafeInteger(cost) && Number(cost) >= 1 && Number(cost) <= COST_MAX)) {
    return cost as number | undefined
  }
  throw optionInvalid(field, cost, COST_FIX)
}

export function checkedAddress(field: string, address: unknown): string | undefined {
  if (address === undefined || address === null || address === '') return undefined
  if (typeof address === 'string' && canonicalAddress(address) !== undefined) return address
  throw optionInvalid(field, address, ADDRESS_FIX)
}

function checkAttributes(attributes: unknown): void {
  if (!isObject(attributes)) throw optionInvalid('subject.attributes', attributes, 'must be an object')
  for (const name in attributes) {
    const value = attributes[name]
    if (value === undefined || value === null || ['string', 'number', 'boolean'].includes(typeof value)) continue
    throw optionInvalid(`subject.attributes.${name}`, value, 'must be a text, a number or a boolean')
  }
}
