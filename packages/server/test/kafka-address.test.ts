import { describe, expect, test } from 'vitest'
import { Deduplicator } from '../src/events/kafka/deduplicator.ts'
import { kafkaName, parseKafkaAddress } from '../src/settings/kafka-address.ts'

const PLAIN = { topic: 'sluice.decisions', partitions: 3, tls: false, caFile: undefined, sasl: undefined }

test.each([
  ['10.0.0.5:9092', { ...PLAIN, brokers: ['10.0.0.5:9092'] }],
  ['a:1,b-2.example:65535,[::1]:9/t_1', { ...PLAIN, brokers: ['a:1', 'b-2.example:65535', '[::1]:9'], topic: 't_1' }],
  ['a:1?partitions=12', { ...PLAIN, brokers: ['a:1'], partitions: 12 }],
  ['a:1/t?tls=true&ca=/etc/ca.pem', { ...PLAIN, brokers: ['a:1'], topic: 't', tls: true, caFile: '/etc/ca.pem' }],
  [
    'me:p%40%2F%3A:x@a:1/t?sasl=scram-sha-512',
    { ...PLAIN, brokers: ['a:1'], topic: 't', sasl: { mechanism: 'scram-sha-512', user: 'me', password: 'p@/::x' } },
  ],
  ['me:pw@a:1', { ...PLAIN, brokers: ['a:1'], sasl: { mechanism: 'plain', user: 'me', password: 'pw' } }],
])('%s is an address', (text, expected) => {
  expect(parseKafkaAddress(text)).toEqual(expected)
})

test.each([
  ['', 'give host:port'],
  ['/topic', 'give host:port'],
  ['host', 'a broker is host:port (got "host")'],
  ['host:0', 'a broker is host:port'],
  ['host:65536', 'a broker is host:port'],
  ['a:1,,b:2', 'a broker is host:port (got "")'],
  ['a b:1', 'a broker is host:port'],
  ['a:1/', 'a topic has 1 to 249 letters'],
  ['a:1/..', 'a topic has 1 to 249 letters'],
  ['a:1/x y', 'a topic has 1 to 249 letters'],
  ['a:1/x/y', 'give host:port'],
  ['a:1?ssl=true', 'unknown parameter "ssl"; use one of tls, ca, sasl, partitions'],
  ['a:1?tls=1', 'tls: use true or false (got "1")'],
  ['a:1?tls=true&tls=true', 'parameter tls is given twice'],
  ['a:1?ca=/x', 'ca: has no effect without tls=true'],
  ['a:1?partitions=0', 'partitions: give a whole number from 1 to 1000 (got "0")'],
  ['a:1?sasl=plain', 'sasl: needs user:password@'],
  ['me:hidden@a:1?sasl=gssapi', 'sasl: use one of plain, scram-sha-256, scram-sha-512 (got "gssapi")'],
  ['me@a:1', 'give user:password@'],
  ['me:hidden%@a:1', 'encode % as %25'],
])('%s is refused with the fix', (text, message) => {
  expect(() => parseKafkaAddress(text)).toThrow(message)
  expect(() => parseKafkaAddress(text)).not.toThrow('hidden')
})

test('the name of an address has no password', () => {
  expect(kafkaName(parseKafkaAddress('me:hidden@a:1,b:2/t'))).toBe('kafka a:1,b:2/t')
})

describe('deduplication', () => {
  test('a number that is not above the highest one of its producer is a repeat', () => {
    const deduplicator = new Deduplicator()
    const accepted = [1, 3, 4, 3, 4, 5].map((seq, offset) => deduplicator.accept('a', seq, offset))
    expect(accepted).toEqual([true, true, true, false, false, true])
    expect(deduplicator.accept('b', 1, 6)).toBe(true)
  })

  test('the state continues where another consumer stopped, and is bounded', () => {
    const first = new Deduplicator()
    for (let producer = 0; producer < 1500; producer++) first.accept(`p${producer}`, 7, producer)
    expect(first.states()).toHaveLength(1000)
    const second = new Deduplicator(first.states())
    expect(second.accept('p1499', 7, 1500)).toBe(false)
    expect(second.accept('p1499', 8, 1501)).toBe(true)
    expect(second.states()[0]?.[0]).toBe('p500')
  })
})
