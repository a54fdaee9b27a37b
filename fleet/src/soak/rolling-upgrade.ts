// Replaces a node of an earlier version by one of this version, on one PostgreSQL and one Redis: the limits hold while
// both decide, and a ban that the old node would ignore is refused with its name until it is gone.

import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type PostgresProcess, type RedisProcess, startPostgres, startRedis } from 'sluice/testing'
import { compileEarlierVersion, OLD_VERSION } from '../../../scripts/earlier-version.mjs'
import type { Guarantee } from '../guarantees.ts'
import { ServiceNode } from '../service-node.ts'

const TOKEN = 'token-of-the-soak-tests'
const LIMIT = 200
const CHECKS = 600
const RULES = [
  { rule_id: 'strict', scope: 'per_user', algorithm: 'fixed_window', consistency: 'strict' },
  { rule_id: 'sliding', scope: 'per_user', algorithm: 'sliding_window', consistency: 'strict' },
  { rule_id: 'leased', scope: 'per_user', algorithm: 'fixed_window', consistency: 'leased' },
].map((rule) => ({ ...rule, endpoint_pattern: `/${rule.rule_id}`, limit: LIMIT, window_seconds: 86_400 }))
const BAN = { key: 'user:mallory', ban: true, forever: true, reason: 'soak test' }
const WAIT_SECONDS = 20
/** The promise is one second, on an idle machine. */
const APPLIED_MS_MAX = 10_000

/** Empty: this clone does not have the earlier version. */
export async function rollingUpgrade(): Promise<Guarantee[]> {
  const earlier = compileEarlierVersion(OLD_VERSION)
  if (earlier === undefined) {
    process.stdout.write(`skipped: this clone does not have the commit ${OLD_VERSION}: git fetch --unshallow\n`)
    return []
  }
  const [postgres, redis] = [await startPostgres(), await startRedis()]
  const nodes: ServiceNode[] = []
  try {
    return await upgrade(postgres, redis, earlier.main, nodes)
  } finally {
    await Promise.all(nodes.map((node) => node.stop()))
    await Promise.all([postgres.stop(), redis.stop()])
    earlier.remove()
  }
}

async function upgrade(
  postgres: PostgresProcess,
  redis: RedisProcess,
  earlier: string,
  nodes: ServiceNode[],
): Promise<Guarantee[]> {
  const args = ['--database', postgres.createDatabase(), '--redis', redis.url, '--admin-token', TOKEN]
  const start = async (main?: string) => {
    const dataDir = mkdtempSync(join(tmpdir(), 'sluice-node-'))
    const settings = [...args, '--data-dir', dataDir, '--log-level', 'error', '--store-deadline-ms', '2000']
    const node = await ServiceNode.start(settings, { main })
    nodes.push(node)
    return node
  }
  const old = await start(earlier)
  const first = await start()
  const stored = await send(first, 'PUT', '/api/v1/rate-limit/rule-set', { rules: RULES })
  const admitted = await Promise.all(RULES.map(({ rule_id: id }) => admittedBy([old, first], id)))
  const refused = await send(first, 'POST', '/api/v1/rate-limit/overrides', BAN)
  process.stdout.write(`  HTTP ${refused.status} ${JSON.stringify(refused.body, null, 2).replaceAll('\n', '\n  ')}\n`)
  const waiting = send(first, 'POST', '/api/v1/rate-limit/overrides', BAN, { prefer: `wait=${WAIT_SECONDS}` })
  const second = await start()
  await old.drain()
  const banned = await waiting
  const applied = await Promise.all([first, second].map((node) => enforcesBan(node)))
  const [strict = 0, sliding = 0, leased = 0] = admitted
  return [
    { held: stored.status === 200, text: 'a node of this version changed rules beside an older one' },
    {
      held: strict === LIMIT && sliding === LIMIT,
      text: `both versions admitted ${strict} and ${sliding} of ${LIMIT}`,
    },
    { held: leased > 0 && leased <= LIMIT, text: `both versions admitted ${leased} of ${LIMIT} of a leased rule` },
    {
      held: refused.status === 409 && refused.body.code === 'NODES_OUTDATED' && detailOf(refused).includes('backend'),
      text: 'a ban was refused while the older node ran, with the name of its connection',
    },
    { held: banned.status === 201, text: 'the ban that waited was written once the older node was gone' },
    { held: applied.every((enforced) => enforced), text: 'both nodes of this version enforce the ban' },
  ]
}

type Answer = { readonly status: number; readonly body: Readonly<Record<string, unknown>> }

async function send(
  { address }: ServiceNode,
  method: string,
  path: string,
  body: object,
  more: Readonly<Record<string, string>> = {},
): Promise<Answer> {
  const headers = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json', ...more }
  const response = await fetch(new URL(path, address), { method, headers, body: JSON.stringify(body) })
  return { status: response.status, body: (await response.json()) as Answer['body'] }
}

function detailOf({ body }: Answer): string {
  return String(body.detail)
}

/** Checks of one key, in turns. */
async function admittedBy(nodes: readonly ServiceNode[], ruleId: string): Promise<number> {
  // Nodes apply new rules within a second.
  for (const node of nodes) while (!(await knows(node, ruleId)));
  const turns = Array.from({ length: CHECKS }, (_, index) => nodes[index % nodes.length])
  const answers = await Promise.all(turns.map((node) => node !== undefined && check(node, 'alice', ruleId)))
  return answers.filter((allowed) => allowed).length
}

async function knows({ address }: ServiceNode, ruleId: string): Promise<boolean> {
  const headers = { authorization: `Bearer ${TOKEN}` }
  return (await fetch(new URL(`/api/v1/rate-limit/rules/${ruleId}`, address), { headers })).ok
}

async function enforcesBan(node: ServiceNode): Promise<boolean> {
  const endMs = performance.now() + APPLIED_MS_MAX
  while (performance.now() < endMs) if (!(await check(node, BAN.key.slice('user:'.length), 'sliding'))) return true
  return false
}

async function check(node: ServiceNode, user: string, ruleId: string): Promise<boolean> {
  const path = '/api/v1/rate-limit/check'
  return (await send(node, 'POST', path, { client_id: user, endpoint: `/${ruleId}` })).body.allowed === true
}
