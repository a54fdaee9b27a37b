// Validates the return values of the application's functions. Errors are OPTION_INVALID (status 500), because
// SUBJECT_INVALID (status 400) would blame the client.

import { canonicalAddress } from '../canonical/address.ts'
import { optionInvalid } from '../errors.ts'
import { isObject } from '../known-fields.ts'
import { COST_MAX } from '../rules/cost.ts'
import { requireKnownFacts, type Subject } from '../subject.ts'

const TEXT_FIX = 'must be a string or undefined; convert a number with String(id)'
const COST_FIX = `must be a whole number from 1 to ${COST_MAX}`
const ADDRESS_FIX = 'must be an IPv4 or IPv6 address, or undefined'

/** Validates the result of `subject`. */
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

/** Validates the result of `key`. An empty string counts as undefined. */
export function checkedKey(key: unknown): string | undefined {
  if (typeof key === 'string') return key === '' ? undefined : key
  if (key === undefined || key === null) return undefined
  throw optionInvalid('key', key, `its result ${TEXT_FIX}`)
}

/** Validates the result of `cost`. */
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
    throw optionInvalid(`subject.attributes.${name}`, value, 'must be a string, a number or a boolean')
  }
}
