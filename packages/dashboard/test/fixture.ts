// A real service with Redis and PostgreSQL, tokens of every role, rules and traffic. Started once per test file.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startPostgres, startRedis } from 'sluice/testing'
import { createToken } from '../../server/src/access/token-table.ts'
import { setApprovals } from '../../server/src/approvals/required-approvals.ts'
import { openDatabase } from '../../server/src/db/open-database.ts'
import { createLog } from '../../server/src/log.ts'
import { type Server, startServer } from '../../server/src/service/server.ts'
import { SETTINGS, type Settings } from '../../server/src/settings/settings.ts'

export const SCREENSHOTS = 'packages/dashboard/screenshots'
export const ADMIN_TOKEN = 'admin-token-of-the-dashboard-tests'
export const ROLES = ['viewer', 'editor', 'approver', 'admin'] as const
export type Role = (typeof ROLES)[number]

export type Fixture = {
  /** `http://127.0.0.1:<port>` */
  readonly address: string
  /** A second node of the same fleet. */
  readonly other: string
  readonly tokens: Readonly<Record<Role, { readonly secret: string; readonly id: string }>>
  /** Part of the URL of a webhook. */
  readonly webhook: string
  call(path: string, body?: unknown, method?: string): Promise<unknown>
  /** Sends checks, and waits until they are stored. */
  traffic(): Promise<void>
  /** Sets how many approvals a proposal needs, as `sluice approvals set` does. */
  requireApprovals(count: number): Promise<void>
  close(): Promise<void>
}

/** Texts that a client or an editor may choose. Each would run a script if it were not shown as text. */
export const ATTACKS: readonly string[] = [
  '<script>window.attacked=1</script>',
  '<img src=x onerror=window.attacked=1>',
  '"><svg onload=window.attacked=1>',
  "';window.attacked=1;//",
  'javascript:window.attacked=1',
  '</title><iframe srcdoc="<script>parent.attacked=1</script>">',
  '<style>@import"//evil.example/x";</style>',
  ['`$', '{window.attacked=1}`'].join(''),
]

export const KEY_SECRET = 'key-secret-of-the-dashboard-tests'
const WEBHOOK = 'hook-of-the-dashboard-tests'

const RULES = [
  { rule_id: 'messages_per_user', name: 'Posting messages', endpoint_pattern: '/api/v1/messages', scope: 'per_user' },
  { rule_id: 'search_per_ip', endpoint_pattern: '/api/v1/search', scope: 'per_ip', algorithm: 'sliding_window' },
  {
    ...{ rule_id: 'exports', name: ATTACKS[1], description: ATTACKS.join(' ') },
    ...{ endpoint_pattern: '/api/v1/exports', scope: 'per_tenant', mode: 'shadow' },
  },
]

export async function startFixture(): Promise<Fixture> {
  mkdirSync(SCREENSHOTS, { recursive: true })
  const dataDir = mkdtempSync(join(tmpdir(), 'sluice-dashboard-'))
  const [redis, postgres] = await Promise.all([startRedis(), startPostgres()])
  const database = postgres.createDatabase()
  const settings: Settings = {
    ...{ ...defaults(), port: 0, adminToken: ADMIN_TOKEN, dataDir, redis: redis.url, database },
    storeDeadlineMs: 10_000, // a busy machine must not let on_fail decide
    webhooks: [`http://127.0.0.1:9/${WEBHOOK}?name=${encodeURIComponent(String(ATTACKS[1]))}`], // the discard port
    webhookSecret: 'secret-of-the-dashboard-tests',
    keySecret: KEY_SECRET, // shared by both nodes
  }
  const node = await startServer(settings, createLog('silent'))
  const other = await startServer({ ...settings, dataDir: join(dataDir, 'other') }, createLog('silent'))
  const call = caller(node)
  for (const rule of RULES) {
    await call('/api/v1/rate-limit/rules', { limit: 5, window_seconds: 10, consistency: 'strict', ...rule })
  }
  await endGuards(call)
  return {
    address: node.address,
    other: other.address,
    webhook: WEBHOOK,
    tokens: await createTokens({ database, dataDir }),
    call,
    traffic: () => sendTraffic(call),
    requireApprovals: async (count) => {
      const opened = await openDatabase({ database, dataDir })
      await setApprovals(opened, count, 'test', new Date())
      await opened.close()
    },
    close: async () => {
      await Promise.all([node.close(), other.close()])
      await Promise.all([redis.stop(), postgres.stop()])
      rmSync(dataDir, { recursive: true, force: true })
    },
  }
}

export type RegionNode = Pick<Fixture, 'address' | 'call' | 'close'>

/** A node of the region `eu`, which shares limits with the region `us`. Sign in with ADMIN_TOKEN. */
export async function startRegionNode(): Promise<RegionNode> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-region-'))
  const rules = join(folder, 'rules.json')
  const shared = { endpoint_pattern: '/api/v1/orders', scope: 'per_user', spread: 'global', consistency: 'strict' }
  const limit = { algorithm: 'fixed_window', limit: 100, window: '1d' }
  writeFileSync(rules, JSON.stringify([{ rule_id: 'orders_worldwide', ...shared, ...limit }]))
  const [own, global] = await Promise.all([startRedis(), startRedis()])
  const region = { region: 'eu', regionWeights: { eu: 0.6, us: 0.4 }, homeShare: 0.5, globalRedis: global.url }
  const patient = { storeDeadlineMs: 10_000, globalDeadlineMs: 10_000 }
  const node = await startServer(
    { ...defaults(), ...region, ...patient, port: 0, adminToken: ADMIN_TOKEN, rules, redis: own.url, dataDir: folder },
    createLog('silent'),
  )
  const close = async () => {
    await node.close()
    await Promise.all([own.stop(), global.stop()])
    rmSync(folder, { recursive: true, force: true })
  }
  return { address: node.address, call: caller(node), close }
}

/** A node with the rules of a file, in memory, without recorded events. Sign in with ADMIN_TOKEN. */
export async function startFileNode(rules: string): Promise<RegionNode> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sluice-file-'))
  const node = await startServer(
    { ...defaults(), port: 0, adminToken: ADMIN_TOKEN, rules, dataDir },
    createLog('silent'),
  )
  const close = async () => {
    await node.close()
    rmSync(dataDir, { recursive: true, force: true })
  }
  return { address: node.address, call: caller(node), close }
}

/** The rules of the fixture are direct edits, which the guard watches for a while: ends that. */
export async function endGuards(call: Call): Promise<void> {
  const found = await call('/api/v1/rate-limit/proposals')
  const { proposals } = found as { proposals: { proposal_id: string; kind: string; state: string }[] }
  const open = proposals.filter(({ kind, state }) => kind === 'edit' && state === 'rolling_out')
  for (const { proposal_id: id } of open) await call(`/api/v1/rate-limit/proposals/${id}/promote`, {})
}

function defaults(): Settings {
  return Object.fromEntries(Object.entries(SETTINGS).map(([name, { fallback }]) => [name, fallback()])) as Settings
}

export type Call = Fixture['call']

function caller({ address }: Server): Call {
  return async (path, body, method = body === undefined ? 'GET' : 'POST') => {
    const response = await fetch(address + path, {
      method,
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`)
    return text === '' ? undefined : (JSON.parse(text) as unknown)
  }
}

/** Names are shown to everybody who signs in. */
const TOKEN_NAMES: Readonly<Record<Role, string>> = {
  viewer: String(ATTACKS[0]),
  editor: 'on-call',
  approver: 'lead',
  admin: 'platform',
}

/** As on the command line of the host: the tokens are not related, so that one may approve what another proposed. */
async function createTokens(settings: Pick<Settings, 'database' | 'dataDir'>): Promise<Fixture['tokens']> {
  const opened = await openDatabase(settings)
  const created = ROLES.map(async (role) => {
    const request = { name: TOKEN_NAMES[role], role, expiresAt: null }
    const made = await createToken(opened, request, 'command', new Date())
    return [role, { secret: made?.secret, id: made?.token.tokenId }]
  })
  const tokens = Object.fromEntries(await Promise.all(created)) as Fixture['tokens']
  await opened.close()
  return tokens
}

/** Every attack as user, API key, tenant, plan and path, and enough requests of a few users that some are refused. */
async function sendTraffic(call: Call): Promise<void> {
  const printable = (text: string) => text.replaceAll(/[{}]/g, '')
  const hostile = ATTACKS.flatMap((attack) => [
    { client_id: printable(attack), endpoint: '/api/v1/messages', method: 'POST' },
    { api_key: printable(attack), endpoint: '/api/v1/search', method: 'GET', ip_address: '203.0.113.99' },
    { client_id: 'mallory', endpoint: `/${attack}`, method: 'GET', tenant: printable(attack), plan: printable(attack) },
  ])
  const ordinary = Array.from({ length: 60 }, (_, index) => ({
    client_id: `user_${[1, 1, 1, 2, 3, 4, 5][index % 7]}`,
    endpoint: index % 4 === 0 ? '/api/v1/search' : '/api/v1/messages',
    method: index % 4 === 0 ? 'GET' : 'POST',
    ip_address: `203.0.113.${(index % 3) + 1}`,
    plan: 'free',
    tenant: 'acme',
  }))
  await call('/api/v1/rate-limit/check/batch', { checks: [...hostile, ...ordinary] })
}
