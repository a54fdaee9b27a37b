import fc from 'fast-check'
import * as oracle from 'structured-headers'
import { describe, expect, test } from 'vitest'
import { type Item, parseDictionary, parseList } from './structured-field.ts'

const key = fc.stringMatching(/^[a-z*][a-z0-9_.*-]{0,8}$/)
const text = fc.stringMatching(/^[\x20-\x7e]{0,12}$/)
const number = fc.oneof(fc.integer({ min: -999_999, max: 999_999_999_999_999 }), fc.constantFrom(0, 0.5, 12.125))
const value = fc.oneof(text, number, fc.boolean(), fc.constantFrom(new oracle.Token('a/b:c'), new ArrayBuffer(3)))
const params = fc.array(fc.tuple(key, value), { maxLength: 4 }).map((entries) => new Map(entries))

/** The value as parsed: strings and numbers; other types are undefined. */
function seen(bare: unknown): string | number | undefined {
  return typeof bare === 'string' || typeof bare === 'number' ? bare : undefined
}

function seenItem([bare, extra]: readonly [unknown, ReadonlyMap<string, unknown>]): Item {
  return { value: seen(bare), params: new Map([...extra].map(([name, one]) => [name, seen(one)])) }
}

function oracleList(field: string): Item[] | undefined {
  try {
    return oracle.parseList(field).map((member) => seenItem(member as never))
  } catch {
    return undefined
  }
}

describe('structured fields', () => {
  test('every valid list is parsed', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(value, params), { maxLength: 5 }), (list) => {
        expect(parseList(oracle.serializeList(list as never))).toEqual(list.map(seenItem))
      }),
    )
  })

  test('every valid dictionary is parsed', () => {
    fc.assert(
      fc.property(fc.uniqueArray(key, { maxLength: 4 }), fc.array(fc.tuple(value, params)), (keys, items) => {
        const entries = keys.flatMap((name, index) =>
          items[index] === undefined ? [] : [[name, items[index]] as const],
        )
        const field = oracle.serializeDictionary(new Map(entries) as never)
        const wanted = new Map(entries.map(([name, item]) => [name, seenItem(item)]))
        expect(parseDictionary(field)).toEqual(wanted)
      }),
    )
  })

  test('agrees with another parser on what is invalid and what is parsed', () => {
    const pieces = [
      '"a"',
      '"\\"',
      '"a',
      ';',
      '; ',
      'r=',
      't=1',
      'r=-1',
      'w=1.5',
      ',',
      ', ',
      ' ',
      '1',
      'x',
      ':YQ==:',
      '?1',
      '\t',
    ]
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...pieces), { maxLength: 10 }), (parts) => {
        const field = parts.join('')
        expect(parseList(field), field).toEqual(oracleList(field))
      }),
      { numRuns: 1000 },
    )
  })

  test.each(['"a', '"é"', '1234567890123456', '"a";R=1', '"a",', '"a";r=', '("a")'])('%j is not a list', (field) =>
    expect(parseList(field)).toBeUndefined(),
  )

  test('a field that is too long is ignored', () => {
    expect(parseList(`"${'a'.repeat(5000)}"`)).toBeUndefined()
  })
})
