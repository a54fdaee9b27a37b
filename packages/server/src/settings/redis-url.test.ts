import { expect, test } from 'vitest'
import { isRedisUrl } from './redis-url.ts'

test.each([
  'redis://127.0.0.1:6379',
  'rediss://user:p%40ss@host:6380/0',
  'redis://[::1]:6379/',
  'redis://redis_1.internal',
  'redis+cluster://h1:7000,h2:7001',
  'rediss+cluster://user:password@h1',
  'redis+cluster://[::1]:7000,h2:7001/',
  'redis+sentinel://h1:26379,h2/mymaster',
  'redis+sentinel://:password@h1/mymaster/2',
])('%s is a Redis URL', (url) => expect(isRedisUrl(url)).toBe(true))

test.each([
  'http://h',
  'redis://',
  'redis:///0',
  'redis://h1,h2',
  'redis://h1:6379,h2:6379',
  'redis://h1:6379/orders',
  'redis://h1:0',
  'redis+cluster://h1?tls=1',
  'redis+cluster://h1;h2:6379',
  'redis+cluster://user:p@ss@h1',
  'redis+cluster://',
  'redis+cluster://h1:99999',
  'redis+cluster://h1,,h2',
  'redis+cluster://h1/3',
  'redis+sentinel://h1:26379',
  'redis+sentinel://h1/my master',
  'redis+sentinel://h1/mymaster/x',
])('%s is rejected', (url) => expect(isRedisUrl(url)).toBe(false))
