// Two nodes on a machine without a free core, under load: a busy process answers late, and never admits by policy
// because it was busy. Whatever on_fail decides is counted with its reason, and logged.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { startRedis } from 'sluice/testing'
import { expect, onTestFinished, test, vi } from 'vitest'
import { type Running, start } from './process.ts'
import { clientOf, ruleFile } from './service.ts'

const LIMIT = 100
const BUSY_LOOPS = 3
const CLIENTS = 40
/** Clients that one node gets one after the other: each has buckets of its own, which start cold. */
const USERS = 2
const CHECKS_PER_USER = 150

type Sample = { readonly labels: string; readonly value: number }

test.each(['leased', 'strict'])(
  'two nodes beside busy loops admit no more of a %s rule than the limit, and what on_fail decides has a reason',
  async (consistency) => {
    const redis = await startRedis()
    onTestFinished(() => redis.stop())
    const window = `limit: ${LIMIT}, window: 365d, algorithm: fixed_window`
    const rules = ruleFile(`- { rule_id: r, ${window}, scope: per_user, consistency: ${consistency} }`)
    const args = ['--redis', redis.url, '--rules', rules]
    const nodes = await Promise.all([start(args), start(args)])
    for (let loops = 0; loops < BUSY_LOOPS; loops += 1) busyLoop()
    let byPolicy = 0
    for (let user = 0; user < USERS; user += 1) {
      const answers = (await Promise.all(nodes.map((node) => load(node, `user ${user}`)))).flat()
      const admitted = answers.filter(({ allowed }) => allowed)
      byPolicy += answers.filter(({ source }) => source === 'policy').length
      const admittedByPolicy = admitted.filter(({ source }) => source === 'policy').length
      expect(
        admitted.length - admittedByPolicy,
        `admitted for user ${user}, but for those by policy`,
      ).toBeLessThanOrEqual(LIMIT)
      if (admittedByPolicy === 0) expect(admitted.length, 'not needlessly too little').toBe(LIMIT)
    }
    const reasons = await Promise.all(nodes.map(policyReasons))
    expect(reasons.flat().reduce((sum, { value }) => sum + value, 0)).toBe(byPolicy)
    for (const node of nodes) await loggedAsCounted(node)
  },
)

test.each([1, 2])(
  'with %i workers, a Redis that does not answer is logged with the number of checks and the reasons',
  async (workers) => {
    const redis = await startRedis()
    onTestFinished(() => redis.stop())
    const rules = ruleFile('- { rule_id: r, limit: 1000000, window: 1d, scope: per_user, consistency: strict }')
    const node = await start(['--redis', redis.url, '--rules', rules, '--workers', String(workers)])
    process.kill(redis.pid, 'SIGSTOP')
    onTestFinished(() => void process.kill(redis.pid, 'SIGCONT'))
    await vi.waitFor(
      async () => {
        await load(node, 'alice', 100)
        const reasons = (await policyReasons(node)).filter(({ value }) => value > 0).map(({ labels }) => labels)
        expect(reasons.some((labels) => labels.includes('reason="timeout"'))).toBe(true)
        expect(reasons.some((labels) => labels.includes('reason="breaker_open"'))).toBe(true)
        expect(linesOf(node).length, 'the first line is written at once').toBeGreaterThan(0)
      },
      { timeout: 60_000 },
    )
    process.kill(redis.pid, 'SIGCONT')
    await loggedAsCounted(node)
  },
)

/** Stops the node: its log has accounted for every decision that its metrics count. */
async function loggedAsCounted(node: Running): Promise<void> {
  const counted: Record<string, number> = {}
  for (const { labels, value } of await policyReasons(node)) {
    const [, reason = ''] = /reason="(\w+)"/.exec(labels) ?? []
    if (value > 0) counted[reason] = (counted[reason] ?? 0) + value
  }
  node.signal('SIGTERM')
  await node.ended()
  const logged: Record<string, number> = {}
  for (const { decisions, reasons } of linesOf(node)) {
    expect(Object.values(reasons).reduce((sum, count) => sum + count, 0)).toBe(decisions)
    for (const [reason, count] of Object.entries(reasons)) logged[reason] = (logged[reason] ?? 0) + count
  }
  expect(logged).toEqual(counted)
}

type Line = { readonly event: string; readonly decisions: number; readonly reasons: Readonly<Record<string, number>> }

function linesOf(node: Running): Line[] {
  const lines = node
    .output()
    .stderr.split('\n')
    .filter((line) => line.startsWith('{'))
  return lines.map((line) => JSON.parse(line) as Line).filter(({ event }) => event === 'on_fail_decided')
}

/** Series of sluice_policy_decisions_total. Their sum is that of the decisions by policy. */
async function policyReasons({ address }: Running): Promise<Sample[]> {
  const { body } = await clientOf(address).get('/metrics')
  const samples = String(body.text)
    .split('\n')
    .flatMap((line): Sample[] => {
      const [, name = '', labels = '', value] = /^(\w+)\{(.*)\} (\d+)$/.exec(line) ?? []
      return name === 'sluice_policy_decisions_total' || name === 'sluice_decisions_total'
        ? [{ labels: `${name} ${labels}`, value: Number(value) }]
        : []
    })
  const byPolicy = samples.find(({ labels }) => labels === 'sluice_decisions_total source="policy"')
  const reasons = samples.filter(({ labels }) => labels.startsWith('sluice_policy'))
  expect(reasons.reduce((sum, { value }) => sum + value, 0)).toBe(byPolicy?.value)
  return reasons
}

type Answer = { readonly allowed: boolean; readonly source: string }

async function load({ address }: Running, user: string, checks: number = CHECKS_PER_USER): Promise<Answer[]> {
  const client = clientOf(address)
  const answers: Answer[] = []
  let sent = 0
  const loop = async () => {
    while (sent < checks) {
      sent += 1
      answers.push((await client.check({ client_id: user, detail: true })) as Answer)
    }
  }
  await Promise.all(Array.from({ length: CLIENTS }, loop))
  return answers
}

function busyLoop(): void {
  const child = spawn(process.execPath, ['-e', 'for (;;);'])
  onTestFinished(async () => {
    child.kill('SIGKILL')
    await once(child, 'close')
  })
}
