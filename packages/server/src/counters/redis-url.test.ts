// Where Redis is can be told as one text, and what is none is refused.

import { describe, expect, test } from 'vitest'
import { isRedisUrl, redisClient } from './redis-url.ts'

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
])('%s is one', (url) => expect(isRedisUrl(url)).toBe(true))

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
])('%s is none', (url) => expect(isRedisUrl(url)).toBe(false))

describe('the client', () => {
  test('of a Cluster knows its nodes, its user and TLS', async () => {
    const client = await redisClient('rediss+cluster://user:p%40ss@h1:7000,h2', 100)
    expect(client).toMatchObject({
      isCluster: true,
      options: { redisOptions: { username: 'user', password: 'p@ss', tls: {}, connectTimeout: 100 } },
      startupNodes: [
        { host: 'h1', port: 7000 },
        { host: 'h2', port: 6379 },
      ],
    })
  })

  test('of a primary behind Sentinel knows its name and its database', async () => {
    const client = await redisClient('redis+sentinel://h1,h2:1/mymaster/2', 100)
    const sentinels = [
      { host: 'h1', port: 26_379 },
      { host: 'h2', port: 1 },
    ]
    expect(client).toMatchObject({ options: { name: 'mymaster', db: 2, sentinels } })
  })
})
