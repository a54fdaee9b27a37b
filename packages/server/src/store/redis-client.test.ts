import { expect, test } from 'vitest'
import { redisClient } from './redis-client.ts'

test('the client of a Cluster has its nodes, its user and TLS', async () => {
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

test('the client of a primary behind Sentinel has its name and its database', async () => {
  const client = await redisClient('redis+sentinel://h1,h2:1/mymaster/2', 100)
  const sentinels = [
    { host: 'h1', port: 26_379 },
    { host: 'h2', port: 1 },
  ]
  expect(client).toMatchObject({ options: { name: 'mymaster', db: 2, sentinels } })
})
