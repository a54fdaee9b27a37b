// A node of several processes behaves as one: any worker answers for the whole node.

import { once } from 'node:events'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { Agent, createServer, get, type IncomingMessage, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { startRedis } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { mergeHotKeys } from '../src/fleet/api-hot-key.ts'
import { DECISIONS_PATH } from '../src/http/routes/decisions.ts'
import { DRILL_PATH } from '../src/http/routes/drill.ts'
import { KILL_SWITCH_PATH } from '../src/http/routes/kill-switch.ts'
import type { EventCounts } from '../src/metrics/event-metrics.ts'
import { Metrics } from '../src/metrics/metrics.ts'
import { mergedText } from '../src/metrics/reports.ts'
import { countsFile, WorkerCounts } from '../src/workers/counts-file.ts'
import { WorkerReports } from '../src/workers/worker-reports.ts'
import { temporaryFolder, usePostgres } from './databases.ts'
import { type Running, start } from './process.ts'
import { ADMIN_TOKEN, CHECK, ruleFile } from './service.ts'

const TEN = '- { rule_id: ten, limit: 10, window: 1d, scope: per_user }\n'
const WORKERS = 2
const PATIENTLY = { timeout: 30_000, interval: 50 }

type Node = {
  readonly rulesPath: string
  readonly service: Running
  readonly pids: () => readonly number[]
  /** Uses a new connection, so that the workers take turns. */
  send(path: string, body?: unknown): Promise<{ status: number; text: string }>
  json(path: string, body?: unknown): Promise<Record<string, unknown>>
  /** Samples by name and labels, once every worker has answered the scrape. */
  scrape(): Promise<Map<string, number>>
}

function startNode(rules = TEN, args: readonly string[] = []): Promise<Node> {
  const rulesPath = ruleFile(rules)
  return startWith(rulesPath, ['--rules', rulesPath, ...args])
}

async function startWith(rulesPath: string, args: readonly string[]): Promise<Node> {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  const patient = ['--store-deadline-ms', '5000', '--drain-ms', '0'] // the machine may be busy
  const shared = ['--redis', redis.url, '--workers', String(WORKERS)]
  const service = await start([...shared, ...patient, '--admin-token', ADMIN_TOKEN, ...args])
  const pids = () => [...service.output().stderr.matchAll(/"pid":(\d+),.*"listening"/g)].map(([, pid]) => Number(pid))
  const send: Node['send'] = (path, body) => sendOnce(service.address + path, body)
  const json: Node['json'] = async (path, body) => JSON.parse((await send(path, body)).text)
  const scrape: Node['scrape'] = async () => {
    let samples = new Map<string, number>()
    await vi.waitFor(async () => {
      samples = samplesIn((await send('/metrics')).text)
      expect(samples.get('sluice_workers_stale')).toBe(0)
    }, PATIENTLY)
    return samples
  }
  const node = { rulesPath, service, pids, send, json, scrape }
  await vi.waitFor(async () => expect((await scrape()).get('sluice_workers')).toBe(WORKERS), PATIENTLY)
  return node
}

function sendOnce(url: string, body: unknown): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json', connection: 'close' }
    const method = body === undefined ? 'GET' : 'POST'
    const sent = request(url, { method, headers, agent: false }, async (response) => {
      resolve({ status: response.statusCode ?? 0, text: await text(response) })
    })
    // A connection that was handed to a worker just before it was killed is never answered.
    sent.setTimeout(5000, () => sent.destroy(new Error('no answer within 5 s')))
    sent.once('error', reject)
    sent.end(body === undefined ? undefined : JSON.stringify(body))
  })
}

function samplesIn(scraped: string): Map<string, number> {
  const lines = scraped.split('\n').filter((line) => /^\w/.test(line))
  return new Map(
    lines.map((line) => {
      const at = line.lastIndexOf(' ')
      return [line.slice(0, at), Number(line.slice(at + 1))] as const
    }),
  )
}

/** Sends checks of several users, and returns how many were allowed and refused. */
async function checkMany(
  { json }: Node,
  count: number,
  facts: object = {},
): Promise<{ allowed: number; refused: number }> {
  let allowed = 0
  for (let sent = 0; sent < count; sent += 1) {
    if ((await json(CHECK, { client_id: `user_${sent % 3}`, ...facts })).allowed) allowed += 1
  }
  return { allowed, refused: count - allowed }
}

function checksIn(samples: ReadonlyMap<string, number>): { allowed: number; refused: number } {
  const of = (result: string) => samples.get(`sluice_checks_total{rule="ten",result="${result}"}`) ?? 0
  return { allowed: of('allowed'), refused: of('refused') }
}

describe('/metrics of any worker is that of the node', () => {
  test('every scrape agrees with the counts of the clients', async () => {
    const node = await startNode()
    const counted = await checkMany(node, 60)
    expect(counted).toEqual({ allowed: 30, refused: 30 })
    for (let scraped = 0; scraped < 2 * WORKERS; scraped += 1) {
      const samples = await node.scrape()
      expect(checksIn(samples)).toEqual(counted)
      expect(samples.get('sluice_decision_duration_seconds_count')).toBe(60)
      expect(samples.get('sluice_decision_duration_seconds_bucket{le="+Inf"}')).toBe(60)
      expect(samples.get('sluice_rules_version')).toBe(1)
      expect([...samples.keys()].filter((name) => name.startsWith('sluice_build_info'))).toHaveLength(1)
      expect(samples.get('sluice_redis_keys{store="default"}')).toBeGreaterThan(0)
    }
  })

  test('no total decreases when workers are killed and replaced, and the node survives each of them', async () => {
    const node = await startNode()
    let counted = await checkMany(node, 20)
    const before = await node.scrape()
    expect(checksIn(before)).toEqual(counted)
    const first = node.pids()
    expect(first).toHaveLength(WORKERS)
    for (const [killed, pid] of first.entries()) {
      process.kill(pid, 'SIGKILL')
      await vi.waitFor(async () => {
        const samples = await node.scrape()
        expect(checksIn(samples)).toEqual(counted)
        expect(samples.get('sluice_workers_replaced_total')).toBe(killed + 1)
        expect(samples.get('sluice_workers')).toBe(WORKERS)
      }, PATIENTLY)
      const more = await checkMany(node, 10)
      counted = { allowed: counted.allowed + more.allowed, refused: counted.refused + more.refused }
      expect(checksIn(await node.scrape())).toEqual(counted)
    }
    const after = await node.scrape()
    for (const [name, value] of before) {
      if (/^(sluice|process)_\w+_(total|count|bucket|sum)(\{|$)/.test(name))
        expect(after.get(name), name).toBeGreaterThanOrEqual(value)
    }
    node.service.signal('SIGTERM')
    expect(await node.service.ended()).toMatchObject({ code: 0 })
  })

  test('a stuck worker counts with its last values, and delays at most one scrape', async () => {
    const node = await startNode()
    const counted = await checkMany(node, 20)
    expect(checksIn(await node.scrape())).toEqual(counted)
    const [stuck] = node.pids()
    if (stuck === undefined) throw new Error('no worker has logged its pid')
    process.kill(stuck, 'SIGSTOP')
    onTestFinished(() => void process.kill(stuck, 'SIGCONT'))
    // Connections that the stuck worker has accepted are answered later.
    const scraped = await Promise.any(Array.from({ length: WORKERS }, () => node.send('/metrics')))
    const samples = samplesIn(scraped.text)
    expect(checksIn(samples)).toEqual(counted)
    expect(samples.get('sluice_workers_stale')).toBe(1)
    const number = Number(new RegExp(`"worker":(\\d),"pid":${stuck},`).exec(node.service.output().stderr)?.[1])
    const up = [1, 2].map((worker) => samples.get(`sluice_worker_up{worker="${worker}"}`))
    expect(up, 'names the stuck worker').toEqual([1, 2].map((worker) => (worker === number ? 0 : 1)))
    const readiness = await Promise.any(Array.from({ length: WORKERS }, () => node.json('/readyz')))
    expect(readiness).toMatchObject({ status: 'degraded', reasons: ['workers: 1 not answering'] })
    process.kill(stuck, 'SIGCONT')
    expect(checksIn(await node.scrape())).toEqual(counted)
  })
})

test('without an answer of the supervisor, a scrape has the gauges of one worker and names the others', async () => {
  const { service } = await startNode()
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  onTestFinished(() => agent.destroy())
  const scrape = () =>
    new Promise<{ status: number | undefined; samples: Map<string, number> }>((resolve, reject) => {
      const answered = async (response: IncomingMessage) =>
        resolve({ status: response.statusCode, samples: samplesIn(await text(response)) })
      get(`${service.address}/metrics`, { agent }, (response) => void answered(response)).on('error', reject)
    })
  expect((await scrape()).samples.get('sluice_worker_up{worker="1"}')).toBe(1)
  process.kill(service.pid, 'SIGSTOP')
  onTestFinished(() => void process.kill(service.pid, 'SIGCONT'))
  const { status, samples } = await scrape()
  expect(status).toBe(200)
  const up = [1, 2].map((worker) => samples.get(`sluice_worker_up{worker="${worker}"}`))
  expect(up.toSorted()).toEqual([0, 1])
  expect(samples.get('sluice_workers_stale')).toBe(1)
  expect(samples.get('sluice_rules_version')).toBe(1)
  const totals = [...samples.keys()].filter((name) => /_(total|count|bucket|sum)(\{|$)/.test(name))
  expect(totals, 'totals below those of the node would look like a restart').toEqual([])
})

describe('decision events of all workers', () => {
  const postgres = usePostgres()

  test('are in one scrape, and each sink has stored every decision of the clients', async () => {
    const path = join(temporaryFolder(), 'decisions.jsonl')
    const sinks = ['--events-sink', `jsonl=${path}`, '--events-sample', '1']
    const node = await startWith('', ['--database', postgres().createDatabase(), ...sinks])
    const { allowed, refused } = await checkMany(node, 120, { endpoint: '/demo' })
    expect(refused).toBeGreaterThan(0)
    await vi.waitFor(async () => {
      const samples = await node.scrape()
      expect(samples.get('sluice_events_decided_total')).toBe(120)
      for (const sink of ['embedded', 'jsonl']) {
        const of = (name: string) => samples.get(`sluice_events_${name}{sink="${sink}"}`)
        const counts = ['stored_total', 'sampled_out_total', 'dropped_total', 'pending', 'uncounted_total'].map(of)
        expect([sink, ...counts]).toEqual([sink, 120, 0, 0, 0, 0])
      }
    }, PATIENTLY)
    expect(await node.json('/api/v1/analytics/summary')).toMatchObject({ allowed, refused })
    const lines = [1, 2].map((worker) => linesIn(path.replace('.jsonl', `-${worker}.jsonl`)))
    expect(
      lines.every((count) => count > 0),
      'both workers decided',
    ).toBe(true)
    expect(lines.reduce((sum, count) => sum + count, 0)).toBe(120)
  })
})

function linesIn(path: string): number {
  return readFileSync(path, 'utf8').split('\n').length - 1
}

describe('events of a worker that ends under load', () => {
  const postgres = usePostgres()
  /** Events that a worker announces ahead: the most by which the node overcounts when it is killed. */
  const AHEAD = 256

  /** Sends checks from several clients until `answered` returns false. Returns the counts of the clients. */
  async function load(node: Node, goesOn: (answered: number) => boolean): Promise<{ sent: number; answered: number }> {
    let [sent, answered] = [0, 0]
    const client = async () => {
      while (goesOn(answered)) {
        sent += 1
        const body = { client_id: `user_${sent % 20}`, endpoint: '/demo' }
        const { status } = await node.send(CHECK, body).catch(() => ({ status: 0 }))
        if (status === 200) answered += 1
      }
    }
    await Promise.all(Array.from({ length: 8 }, client))
    return { sent, answered }
  }

  async function startRecording(sinks: readonly string[], sample: string) {
    const path = join(temporaryFolder(), 'decisions.jsonl')
    const all = [`jsonl=${path}`, ...sinks].flatMap((sink) => ['--events-sink', sink])
    const node = await startWith('', ['--database', postgres().createDatabase(), ...all, '--events-sample', sample])
    const stored = () => [1, 2, 3].map((worker) => path.replace('.jsonl', `-${worker}.jsonl`)).filter(existsSync)
    return { node, lines: () => stored().reduce((sum, file) => sum + linesIn(file), 0) }
  }

  /** Counts of the node once its working sinks have stored everything. */
  async function settled(node: Node, sinks: readonly string[]) {
    return vi.waitFor(async () => {
      const samples = await node.scrape()
      const of = (name: string, sink: string) => samples.get(`sluice_events_${name}{sink="${sink}"}`) ?? Number.NaN
      expect(samples.get('sluice_workers')).toBe(WORKERS)
      expect(samples.get('sluice_workers_replaced_total')).toBe(1)
      for (const sink of ['embedded', 'jsonl']) expect(of('pending', sink)).toBe(0)
      const decided = samples.get('sluice_events_decided_total') ?? 0
      const operations = samples.get('sluice_events_operations_total') ?? 0
      const counts = sinks.map((sink) => {
        const [sampledOut, stored, dropped, lost, pending, uncounted] = [
          ...['sampled_out_total', 'stored_total', 'dropped_total', 'lost_total', 'pending', 'uncounted_total'],
        ].map((name) => of(name, sink)) as [number, number, number, number, number, number]
        expect([sink, sampledOut + stored + dropped + lost + pending]).toEqual([sink, decided + operations])
        return { sink, stored, lost, uncounted }
      })
      return { decided, of: (sink: string) => counts.find((one) => one.sink === sink) ?? fail(sink) }
    }, PATIENTLY)
  }

  const fail = (sink: string): never => {
    throw new Error(`no counts of ${sink}`)
  }

  async function recordedTotal(node: Node): Promise<number> {
    const summary = (await node.json('/api/v1/analytics/summary')) as { allowed: number; refused: number }
    return summary.allowed + summary.refused
  }

  const lostIn = ({ service }: Node) =>
    [...service.output().stderr.matchAll(/"lost":(\{[^}]*\})/g)].map(([, lost]) => JSON.parse(lost as string))

  test('are counted as lost when it is killed: every answered check is in a counter', async () => {
    const sinks = ['embedded', 'jsonl', 'kafka']
    const { node, lines } = await startRecording(['kafka=127.0.0.1:1/events'], '0.5')
    let killed = false
    const { sent, answered } = await load(node, (count) => {
      if (count >= 300 && !killed) process.kill(node.pids()[0] as number, 'SIGKILL')
      killed ||= count >= 300
      return count < 600
    })
    const { decided, of } = await settled(node, sinks)
    expect(decided).toBeGreaterThanOrEqual(answered)
    expect(decided).toBeLessThanOrEqual(sent + AHEAD)
    expect(of('jsonl').stored).toBeLessThanOrEqual(lines())
    expect(of('kafka').lost, 'no event of the killed worker reached it').toBeGreaterThan(0)
    const figures = sinks.map((sink) => [sink, of(sink).lost] as const).filter(([, lost]) => lost > 0)
    expect(lostIn(node)).toEqual([Object.fromEntries(figures)])
    const totals = await recordedTotal(node)
    expect(totals + of('embedded').uncounted).toBeGreaterThanOrEqual(answered)
    expect(totals).toBeLessThanOrEqual(sent)
  })

  test('are none, and counted as none, when it stops cleanly', async () => {
    const { node, lines } = await startRecording([], '0.5')
    let stopped = false
    const { sent, answered } = await load(node, (count) => {
      if (count >= 300 && !stopped) process.kill(node.pids()[0] as number, 'SIGTERM')
      stopped ||= count >= 300
      return count < 600
    })
    const { decided, of } = await settled(node, ['embedded', 'jsonl'])
    expect(decided).toBeGreaterThanOrEqual(answered)
    expect(decided).toBeLessThanOrEqual(sent)
    for (const sink of ['embedded', 'jsonl']) expect(of(sink)).toMatchObject({ lost: 0, uncounted: 0 })
    expect(lines()).toBe(of('jsonl').stored)
    expect(lostIn(node)).toEqual([])
    expect(await recordedTotal(node)).toBe(decided)
  })

  test('are none if it was idle when it was killed', async () => {
    const { node, lines } = await startRecording([], '1') // every decision is pending until a batch has it
    const { sent, answered } = await load(node, (count) => count < 100)
    await vi.waitFor(async () => {
      const samples = await node.scrape()
      for (const sink of ['embedded', 'jsonl']) expect(samples.get(`sluice_events_pending{sink="${sink}"}`)).toBe(0)
    }, PATIENTLY)
    process.kill(node.pids()[0] as number, 'SIGKILL')
    const { decided, of } = await settled(node, ['embedded', 'jsonl'])
    expect(decided).toBeGreaterThanOrEqual(answered)
    expect(decided).toBeLessThanOrEqual(sent)
    for (const sink of ['embedded', 'jsonl']) expect(of(sink)).toMatchObject({ lost: 0, uncounted: 0 })
    expect(lines()).toBe(of('jsonl').stored)
    expect(lostIn(node)).toEqual([])
  })
})

/** Sends enough requests, each on a new connection, to reach every worker. */
function ofManyConnections<T>(ask: () => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: 6 * WORKERS }, ask))
}

describe('an action at one worker applies to all', () => {
  test('a drill', async () => {
    const node = await startNode('- { rule_id: many, limit: 1000, window: 1d, on_fail: closed, consistency: strict }\n')
    const sources = () => ofManyConnections(async () => (await node.json(CHECK, { cost: 1, detail: true })).source)
    expect(new Set(await sources())).toEqual(new Set(['store']))
    expect((await node.send(DRILL_PATH, { seconds: 600 })).status).toBe(200)
    expect(new Set(await sources())).toEqual(new Set(['policy']))
    expect((await node.scrape()).get('sluice_breaker_open{store="default",server="all"}')).toBe(1)
    await replaceWorker(node)
    expect(new Set(await sources()), 'a worker that started during the drill').toEqual(new Set(['policy']))
    expect((await node.send(DRILL_PATH, { seconds: 0 })).status).toBe(200)
    await vi.waitFor(async () => expect(new Set(await sources())).toEqual(new Set(['store'])), PATIENTLY)
  })

  test('a kill, without a database', async () => {
    const node = await startNode('- { rule_id: banned, limit: 0, window: 1d }\n')
    const allowed = () => ofManyConnections(async () => (await node.json(CHECK, {})).allowed)
    expect(new Set(await allowed())).toEqual(new Set([false]))
    const answer = await node.json(KILL_SWITCH_PATH, { rule_id: 'banned', on: true })
    expect(answer).toMatchObject({ durable: false, kills: [{ rule_id: 'banned' }] })
    expect(new Set(await allowed())).toEqual(new Set([true]))
    await replaceWorker(node)
    expect(new Set(await allowed()), 'a worker that started after the kill').toEqual(new Set([true]))
    await node.send(KILL_SWITCH_PATH, { rule_id: 'banned', on: false })
    expect(new Set(await allowed())).toEqual(new Set([false]))
  })

  test('decisions of all workers are listed with the same hashes', async () => {
    const node = await startNode('- { rule_id: banned, limit: 0, window: 1d, scope: per_user }\n')
    await ofManyConnections(() => node.json(CHECK, { client_id: 'alice' }))
    const { decisions } = (await node.json(DECISIONS_PATH)) as { decisions: { key_hash: string; at: string }[] }
    expect(decisions).toHaveLength(6 * WORKERS)
    expect(new Set(decisions.map(({ key_hash }) => key_hash)).size).toBe(1)
    const times = decisions.map(({ at }) => at)
    expect(times).toEqual([...times].sort().reverse())
  })

  test('an event is sent to a webhook once', async () => {
    const { url, received } = await receiveHooks()
    const types = () => received.map(({ type }) => type)
    const node = await startNode(TEN, ['--webhooks', url, '--webhook-secret', 'a secret of webhooks'])
    await node.send(KILL_SWITCH_PATH, { everything: true, on: true })
    await vi.waitFor(() => expect(types()).toContain('kill_switch.changed'), PATIENTLY)
    await vi.waitFor(() => expect(types()).toContain('node.degraded'), PATIENTLY)
    await node.send(KILL_SWITCH_PATH, { everything: true, on: false })
    await vi.waitFor(() => expect(types()).toContain('node.recovered'), PATIENTLY)
    const counted = await node.scrape()
    expect(counted.get('sluice_webhooks_delivered_total')).toBe(received.length)
    expect(types().filter((type) => type === 'node.degraded')).toHaveLength(1)
    expect(types().filter((type) => type === 'node.recovered')).toHaveLength(1)
    expect(types().filter((type) => type === 'kill_switch.changed')).toHaveLength(2)
  })

  test('a failing sink is reported to a webhook once, with the figures of all workers', async () => {
    const { url, received } = await receiveHooks()
    const hooks = ['--webhooks', url, '--webhook-secret', 'a secret of webhooks']
    const node = await startNode(TEN, [...hooks, '--events-sink', 'clickhouse=http://127.0.0.1:1'])
    const sent = 6 * WORKERS
    await ofManyConnections(() => node.json(CHECK, { client_id: 'alice' }))
    const down = () => received.filter(({ type }) => type === 'sink.down')
    // Sampled every 10 s, and reported when it has failed for 10 s.
    await vi.waitFor(() => expect(down()).toHaveLength(1), { timeout: 60_000, interval: 100 })
    expect(down()[0]?.data).toEqual({ sink: 'clickhouse', pending: sent, dropped: 0 })
  })
})

/** Receives webhooks. */
async function receiveHooks(): Promise<{ url: string; received: { type: string; data: unknown }[] }> {
  const received: { type: string; data: unknown }[] = []
  const receiver = createServer(async (hook, response) => {
    received.push(JSON.parse(await text(hook)))
    response.end()
  }).listen(0, '127.0.0.1')
  await once(receiver, 'listening')
  onTestFinished(() => void receiver.close())
  return { url: `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`, received }
}

/** Kills a worker, and waits until another one has replaced it. */
async function replaceWorker(node: Node): Promise<void> {
  const before = (await node.scrape()).get('sluice_workers_replaced_total') ?? 0
  process.kill(node.pids()[0] as number, 'SIGKILL')
  await vi.waitFor(async () => {
    const samples = await node.scrape()
    expect(samples.get('sluice_workers_replaced_total')).toBe(before + 1)
    expect(samples.get('sluice_workers')).toBe(WORKERS)
  }, PATIENTLY)
}

test('a worker that cannot be replaced because the rules became invalid does not end the others', async () => {
  const node = await startNode()
  writeFileSync(node.rulesPath, '- { rule_id: ten, limit: -1, window: 1d }\n')
  process.kill(node.pids()[0] as number, 'SIGKILL')
  await vi.waitFor(() => expect(node.service.output().stderr).toContain('invalid rules\n'), PATIENTLY)
  expect((await node.json(CHECK, { client_id: 'a' })).allowed).toBe(true)
  writeFileSync(node.rulesPath, TEN)
  await vi.waitFor(async () => expect((await node.scrape()).get('sluice_workers')).toBe(WORKERS), PATIENTLY)
})

test('a worker that replaces another has its place in the fleet', async () => {
  const node = await startNode()
  const names = async () => {
    const { nodes } = (await node.json('/api/v1/fleet')) as { nodes: { node: string; status: string }[] }
    return nodes.map(({ node: name, status }) => `${name.split('/').at(-1)} ${status}`)
  }
  await vi.waitFor(async () => expect(await names()).toEqual(['1 ready', '2 ready']), PATIENTLY)
  await replaceWorker(node)
  await vi.waitFor(async () => expect(await names()).toEqual(['1 ready', '2 ready']), PATIENTLY)
})

test('the gateway counts for the whole node too', async () => {
  const service = createServer((_request, response) => response.end('served')).listen(0, '127.0.0.1')
  await once(service, 'listening')
  onTestFinished(() => void service.close())
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  const upstream = `http://127.0.0.1:${(service.address() as AddressInfo).port}`
  const rules = ruleFile('- { rule_id: ten, limit: 10, window: 1d }\n')
  const shared = ['--redis', redis.url, '--workers', String(WORKERS), '--store-deadline-ms', '5000', '--rules', rules]
  const own = ['--upstream', upstream, '--listen', '127.0.0.1:0', '--admin-token', ADMIN_TOKEN]
  const gateway = await start(['gateway', ...own, ...shared])
  const api = /API, health and metrics: (\S+)/.exec(gateway.output().stdout)?.[1]
  for (let sent = 0; sent < 15; sent += 1) await sendOnce(`${gateway.address}/`, undefined)
  await vi.waitFor(async () => {
    const samples = samplesIn((await sendOnce(`${api}/metrics`, undefined)).text)
    expect(samples.get('sluice_gateway_requests_total{outcome="passed"}')).toBe(10)
    expect(samples.get('sluice_gateway_requests_total{outcome="refused"}')).toBe(5)
  }, PATIENTLY)
})

test('a worker that stored events after its last report leaves no counter lower and none below zero', async () => {
  const counts = (stored: number) => ({
    ...{ decided: 100, operations: 1, sampledOut: 20 },
    sinks: [
      { name: 'kafka', stored, dropped: 2, counted: stored, uncounted: 0, pending: 0, lagSeconds: 0, isUp: true },
    ],
  })
  const metrics = new Metrics()
  metrics.watchEvents({ totals: () => counts(70) })
  metrics.storeAnswered(1, 0.001, { store: 'default', server: 'a' })
  const file = new WorkerCounts(1)
  const worker = file.take()
  countsFile(worker, file.fd).write(counts(79))
  const reports = new WorkerReports()
  reports.note(1, await metrics.report())
  reports.ended(1, file.end(worker) as EventCounts)
  const expected = [
    'sluice_store_batch_requests_count 1',
    ...['sluice_events_decided_total 100', 'sluice_events_operations_total 1'],
    ...['sluice_events_sampled_out_total{sink="kafka"} 20', 'sluice_events_stored_total{sink="kafka"} 79'],
    ...['sluice_events_dropped_total{sink="kafka"} 2', 'sluice_events_lost_total{sink="kafka"} 0'],
    'sluice_events_uncounted_total{sink="kafka"} 21',
  ]
  const linesOf = (text: string) => text.split('\n').filter((line) => expected.includes(line))
  expect(linesOf(await mergedText(await reports.all(new Set(), 0, new Set(), 1))), 'its channel is still open').toEqual(
    expected,
  )
  await reports.retire(1)
  expect(linesOf(await mergedText(await reports.all(new Set(), 0, new Set(), 1)))).toEqual(expected)
})

test('hot keys of several workers are added up, and shares refer to all checks of the node', () => {
  const key = { rule_id: 'r', name: 'default', key_hash: 'a' }
  const alice = (checks_per_second: number, share: number) => ({ ...key, checks_per_second, share })
  const bob = { ...key, key_hash: 'b', checks_per_second: 250, share: 0.25 }
  const merged = mergeHotKeys([[alice(100, 0.1)], [alice(300, 0.3), bob], []])
  expect(merged).toEqual([alice(400, 0.2), { ...bob, share: 0.125 }])
})
