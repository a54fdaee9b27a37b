import { spawnSync } from 'node:child_process'
import type protobuf from 'protobufjs'
import descriptor from 'protobufjs/ext/descriptor.js'
import { describe, expect, test } from 'vitest'
import { codec } from './messages.ts'
import { STACK_NAMES, serveGrpc } from './stacks.ts'

const RULE = '- { rule_id: one, limit: 5, window: 1d, scope: per_user }\n'
const FILE = 'grpc/reflection/v1/reflection.proto'
const Request = codec(FILE, 'grpc.reflection.v1.ServerReflectionRequest')
const Response = codec(FILE, 'grpc.reflection.v1.ServerReflectionResponse')

type File = { name: string; messageType: { name: string }[]; service: { name: string; method: { name: string }[] }[] }

describe.each(STACK_NAMES)('reflection on the %s stack', (stack) => {
  test.each(['v1', 'v1alpha'])('%s lists all services and describes their messages', async (version) => {
    const { client } = await serveGrpc(stack, RULE)
    const stream = client.open(`/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`)
    const ask = async (request: Record<string, unknown>) => {
      const count = stream.messages.length + 1
      stream.send(Request.encode(request))
      await stream.count(count)
      return Response.decode(stream.messages[count - 1] as Buffer)
    }
    const { list_services_response } = await ask({ list_services: '' })
    const { service } = list_services_response as { service: { name: string }[] }
    const names = service.map(({ name }) => name)
    expect(names).toEqual(expect.arrayContaining(['grpc.health.v1.Health', 'sluice.v1.RateLimiter']))
    for (const symbol of [...names, 'sluice.v1.CheckRequest', 'sluice.v1.RateLimiter.Check']) {
      const found = await ask({ file_containing_symbol: symbol })
      const files = filesOf(found)
      expect(files.length, symbol).toBeGreaterThan(0)
    }
    const [file] = filesOf(await ask({ file_by_filename: 'sluice/v1/rate_limiter.proto' }))
    expect(file?.service[0]?.method.map(({ name }) => name)).toEqual([
      ...['Check', 'CheckMany', 'CheckStream', 'Refund', 'Explain'],
    ])
    expect(await ask({ file_containing_symbol: 'nope' })).toMatchObject({
      original_request: { file_containing_symbol: 'nope' },
      error_response: { error_code: 5, error_message: 'unknown symbol nope' },
    })
    expect(await ask({})).toMatchObject({ error_response: { error_code: 3 } })
    stream.end()
    expect((await stream.done).status).toBe(0)
  })
})

function filesOf(response: Record<string, unknown>): File[] {
  const { file_descriptor_proto: files } = response.file_descriptor_response as { file_descriptor_proto: Uint8Array[] }
  const type = descriptor.FileDescriptorProto as unknown as protobuf.Type
  return files.map((bytes) => type.toObject(type.decode(bytes), { defaults: true }) as File)
}

test('the generated descriptors are up to date', () => {
  const { status, stderr } = spawnSync(process.execPath, ['scripts/descriptors.mjs', '--check'], { encoding: 'utf8' })
  expect([status, stderr]).toEqual([0, ''])
})
