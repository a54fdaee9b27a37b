import { startRedis } from 'sluice/testing'
import { expect, onTestFinished, test, vi } from 'vitest'
import { run, start } from '../process.ts'
import { ruleFile } from '../service.ts'
import { grpcClient } from './client.ts'
import { CheckRequest, CheckResponse, RATE_LIMITER } from './messages.ts'
import { STACK_NAMES } from './stacks.ts'

const TEN = '- { rule_id: ten, limit: 10, window: 1d, scope: per_user }\n'

test.each(STACK_NAMES)('workers on the %s stack share one gRPC port and one limit, and drain', async (stack) => {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  const patient = ['--store-deadline-ms', '5000', '--drain-ms', '0'] // the machine may be busy
  const grpc = ['--grpc-port', '0', '--grpc-stack', stack]
  const service = await start(['--redis', redis.url, '--workers', '2', '--rules', ruleFile(TEN), ...patient, ...grpc])
  const listening = () =>
    service
      .output()
      .stderr.split('\n')
      .filter((line) => line.includes('"grpc_listening"'))
  await vi.waitFor(() => expect(listening()).toHaveLength(2), { timeout: 20_000 })
  const [, address] = /gRPC listens on (\S+)/.exec(service.output().stdout) ?? []
  for (const line of listening()) expect(JSON.parse(line)).toMatchObject({ address })
  const message = CheckRequest.encode({ client_id: 'a' })
  // Connections are distributed over the workers in turn.
  const clients = Array.from({ length: 6 }, () => grpcClient(`http://${address}`))
  const calls = clients.flatMap((client) => [1, 2, 3, 4, 5].map(() => client.call(`${RATE_LIMITER}/Check`, message)))
  const answers = await Promise.all(calls)
  expect(answers.filter(({ messages }) => CheckResponse.decode(messages[0] as Buffer).allowed)).toHaveLength(10)
  const metrics = await (await fetch(`${service.address}/metrics`)).text()
  expect(metrics).toMatch(/sluice_grpc_calls_total\{method="sluice.v1.RateLimiter\/Check",status="ok"\} 30\n/)
  expect(metrics).toMatch(/sluice_grpc_connections 6\n/)
  service.signal('SIGTERM')
  expect(await service.ended()).toMatchObject({ code: 0 })
})

test('a port in use fails the start with advice', async () => {
  const { output } = await start(['--rules', ruleFile(TEN), '--grpc-port', '0'])
  const port = /gRPC listens on \S+:(\d+)/.exec(output().stdout)?.[1] ?? ''
  const { code, stderr } = run(['--rules', ruleFile(TEN), '--port', '0', '--grpc-port', port])
  expect(code).toBe(1)
  expect(stderr).toContain('--grpc-port')
})
