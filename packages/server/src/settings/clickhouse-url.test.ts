import { expect, it } from 'vitest'
import { readClickHouseUrl } from './clickhouse-url.ts'

it.each([
  ['http://127.0.0.1', ['http://127.0.0.1:8123', '', '', 'sluice']],
  ['http://host:9000/', ['http://host:9000', '', '', 'sluice']],
  ['https://host:443/events', ['https://host:443', '', '', 'events']],
  ['https://[::1]', ['https://[::1]:8123', '', '', 'sluice']],
  ['http://[::1]:80/db_1', ['http://[::1]:80', '', '', 'db_1']],
  ['http://me:p%40ss%3A%2F@host:8123/db', ['http://host:8123', 'me', 'p@ss:/', 'db']],
  ['http://me@host', ['http://host:8123', 'me', '', 'sluice']],
])('%s is read', (text, [origin, user, password, database]) => {
  expect(readClickHouseUrl(text)).toEqual({ origin, user, password, database })
})

it.each([
  '',
  'host:8123',
  'clickhouse://host',
  'http://',
  'http:///db',
  'http://host:99999',
  'http://host/a/b',
  'http://host/a b',
  'http://host/a;b',
  'http://host/1db',
  'http://host/?database=x',
  'http://host/#x',
  'http://me:%zz@host',
])('%j is refused', (text) => {
  expect(readClickHouseUrl(text)).toBeUndefined()
})
