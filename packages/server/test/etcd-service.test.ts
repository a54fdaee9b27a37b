// A node with rules in etcd, as users run it: changes are applied, invalid ones and outages change nothing, and a node
// that starts while etcd is unreachable uses its snapshot.

import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { type AddressInfo, connect } from 'node:net'
import { createServer } from 'node:tls'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { type EtcdProcess, startEtcd } from 'sluice/testing'
import { expect, onTestFinished, test, vi } from 'vitest'
import { PROPOSALS_PATH } from '../src/rollouts/edit-hooks.ts'
import { temporaryFolder } from './databases.ts'
import { ADMIN_TOKEN, type Client, RULES, serveSettings } from './service.ts'

const KEY = '/sluice/rules/all.yaml'
const PATIENTLY = { timeout: 20_000, interval: 50 }

async function freshEtcd(): Promise<EtcdProcess> {
  const etcd = await startEtcd()
  onTestFinished(() => etcd.stop())
  return etcd
}

function limited(limit: number): string {
  return `- { rule_id: one, limit: ${limit}, window: 1d, scope: per_user }\n`
}

async function limitOf({ check }: Client): Promise<unknown> {
  return (await check({ client_id: 'alice', dry_run: true })).limit
}

test('valid changes are applied, invalid ones are not, and writes through the API are rejected', async () => {
  const etcd = await freshEtcd()
  await etcd.put({ [KEY]: limited(1) })
  const node = await serveSettings({ rules: `etcd://${etcd.host}/sluice/rules`, dataDir: temporaryFolder() })
  expect(await limitOf(node)).toBe(1)
  const revision = await etcd.put({ [KEY]: limited(2) })
  await vi.waitFor(async () => expect(await limitOf(node)).toBe(2), PATIENTLY)
  expect((await node.get(RULES, ADMIN_TOKEN)).body.version, 'the version is the revision').toBe(revision)

  await etcd.put({ [KEY]: limited(-3) })
  await vi.waitFor(async () => expect((await node.get('/readyz')).body.status).toBe('degraded'), PATIENTLY)
  expect(await limitOf(node)).toBe(2)
  const told = node.logged.map(({ errors }) => errors).find((errors) => errors !== undefined)
  expect(told).toEqual([
    expect.stringMatching(/^etcd \/sluice\/rules\/all\.yaml:1: rules\[0\]\.limit: give a whole number/),
  ])
  await etcd.put({ [KEY]: limited(3).replace('limit', 'name: "a\\u2028b", limit') })
  const unprintable = expect.stringMatching(/^etcd \/sluice\/rules\/all\.yaml:1: one\.name: remove control characters/)
  await vi.waitFor(() => expect(node.logged.map(({ errors }) => errors)).toContainEqual([unprintable]), PATIENTLY)
  expect(await limitOf(node)).toBe(2)
  await etcd.put({ [KEY]: limited(4) })
  await vi.waitFor(async () => expect(await limitOf(node)).toBe(4), PATIENTLY)
  await vi.waitFor(async () => expect((await node.get('/readyz')).body.status).toBe('ready'), PATIENTLY)

  const write = await node.post(RULES, { rule_id: 'x', limit: 1, window_seconds: 1 }, ADMIN_TOKEN)
  expect(write).toMatchObject({ status: 409, body: { code: 'RULES_FROM_ETCD' } })
  const changes = [{ op: 'update', rule: { rule_id: 'one', limit: 5 } }]
  const proposal = await node.post(PROPOSALS_PATH, { changes, reason: 'x' }, ADMIN_TOKEN)
  expect(proposal).toMatchObject({ status: 409, body: { code: 'RULES_FROM_ETCD' } })
})

test('while etcd is unreachable checks continue, and a node starts from its snapshot', async () => {
  const etcd = await freshEtcd()
  await etcd.put({ [KEY]: limited(5) })
  const settings = { rules: `etcd://${etcd.host}/sluice/rules`, dataDir: temporaryFolder() }
  const first = await serveSettings(settings)
  await etcd.down()
  await vi.waitFor(async () => expect((await first.get('/readyz')).body.status).toBe('degraded'), PATIENTLY)
  expect(await limitOf(first)).toBe(5)
  await first.close()

  const second = await serveSettings(settings)
  expect(await limitOf(second), 'from the snapshot').toBe(5)
  await etcd.up()
  await etcd.put({ [KEY]: limited(6) })
  await vi.waitFor(async () => expect(await limitOf(second)).toBe(6), PATIENTLY)
  await vi.waitFor(async () => expect((await second.get('/readyz')).body.status).toBe('ready'), PATIENTLY)
})

test('without etcd and without a snapshot a node does not start, and reports why', async () => {
  const starting = serveSettings({ rules: 'etcd://127.0.0.1:65535/sluice/rules', dataDir: temporaryFolder() })
  await expect(starting).rejects.toThrow(/cannot read the rules from the keys below \/sluice\/rules\/ in etcd at /)
})

const BIN = fileURLToPath(new URL('../bin/sluice.js', import.meta.url))
const pem = (name: string) => fileURLToPath(new URL(`fixtures/tls/${name}`, import.meta.url))

/** TLS in front of an etcd; returns its port. */
async function tlsBefore(etcd: EtcdProcess): Promise<number> {
  const identity = { cert: readFileSync(pem('server.pem')), key: readFileSync(pem('server.key')) }
  const proxy = createServer(identity, (socket) => {
    const upstream = connect(Number(etcd.host.split(':')[1]), '127.0.0.1')
    for (const side of [socket, upstream]) side.on('error', () => {})
    socket.pipe(upstream).pipe(socket)
  })
  proxy.on('tlsClientError', () => {})
  onTestFinished(() => void proxy.close())
  proxy.listen(0, '127.0.0.1')
  await once(proxy, 'listening')
  return (proxy.address() as AddressInfo).port
}

test('etcds:// is TLS, and a certificate of an unknown authority is rejected', { timeout: 300_000 }, async () => {
  const etcd = await freshEtcd()
  await etcd.put({ [KEY]: limited(1) })
  const url = `etcds://127.0.0.1:${await tlsBefore(etcd)}/sluice/rules`
  const rulesOf = async (env: Record<string, string>) => {
    const doctor = promisify(execFile)(process.execPath, [BIN, 'doctor', '--json', '--rules', url], { env })
    const { stdout } = await doctor.catch((error: { stdout: string }) => error) // it may end with 3
    const findings = JSON.parse(stdout) as { about: string; health: string; found: string }[]
    return findings.find(({ about }) => about === 'rules')
  }
  expect(await rulesOf({ NODE_EXTRA_CA_CERTS: pem('ca.pem') })).toMatchObject({ health: 'ok' })
  expect(await rulesOf({})).toMatchObject({ health: 'error', found: expect.stringMatching(/certificate/) })
})
