import { describe, expect, test } from 'vitest'
import { ProtobufWriter } from '../../src/grpc/protobuf.ts'
import { STACK_NAMES, serveGrpc } from './stacks.ts'

const CHECK = '/grpc.health.v1.Health/Check'
const WATCH = '/grpc.health.v1.Health/Watch'
const RULE = '- { rule_id: one, limit: 5, window: 1d, scope: per_user }\n'
const named = (service: string) => new ProtobufWriter().string(1, service).finish()
const [SERVING, NOT_SERVING, UNKNOWN] = [1, 2, 3].map((status) => Buffer.from([8, status]))

describe.each(STACK_NAMES)('health on the %s stack', (stack) => {
  test('the node and each service serve; an unknown one is NOT_FOUND', async () => {
    const { client } = await serveGrpc(stack, RULE)
    for (const service of ['', 'ratelimit', 'envoy.service.ratelimit.v3.RateLimitService', 'sluice.v1.RateLimiter']) {
      expect(await client.call(CHECK, named(service)), service).toMatchObject({ status: 0, messages: [SERVING] })
    }
    expect(await client.call(CHECK, named('nope'))).toMatchObject({
      status: 5,
      detail: expect.stringContaining('nope'),
    })
  })

  test('a watch reports the drain, and ends when the node closes', async () => {
    const { client, drain, close } = await serveGrpc(stack, RULE)
    const [node, unknown] = [client.open(WATCH), client.open(WATCH)]
    node.send(named(''))
    unknown.send(named('nope'))
    await Promise.all([node.count(1), unknown.count(1)])
    expect([...node.messages, ...unknown.messages]).toEqual([SERVING, UNKNOWN])
    drain()
    await node.count(2)
    expect(node.messages).toEqual([SERVING, NOT_SERVING])
    await close()
    expect(await node.done).toMatchObject({ status: 14 })
  })
})
