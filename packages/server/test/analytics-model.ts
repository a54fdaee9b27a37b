// The answers of Analytics, computed from rows in memory: the specification that every implementation is compared with.

import {
  type Dimension,
  type EventsQuery,
  type Filter,
  type LatencyPoint,
  type Point,
  type Range,
  type RefusedClient,
  type RefusedClientsQuery,
  type RollupName,
  rollupOf,
  type Series,
  type Summary,
  type TimelineQuery,
  type TopQuery,
  type TopRow,
} from '../src/events/analytics.ts'
import type { Batch, ClientKind, DecisionEvent, EventSource } from '../src/events/event.ts'

type Outcome = {
  readonly minuteMs: number
  readonly names: Partial<Record<Dimension | 'client' | 'kind', string>>
  readonly allowed: number
  readonly refused: number
  readonly near_limit: number
}

export class AnalyticsModel {
  readonly #batches: readonly Batch[]

  constructor(batches: readonly Batch[]) {
    this.#batches = batches
  }

  timeline({ filter, by, stepMs, seriesMax, ...range }: TimelineQuery): Series[] {
    const outcomes = this.#outcomes(rollupOf(filter, by), range, filter)
    const nameOf = ({ names }: Outcome) => (by === undefined ? 'all' : (names[by] ?? ''))
    const ranked = [...groups(outcomes, nameOf)]
      .map(([name, list]) => ({ name, decisions: sum(list, 'allowed') + sum(list, 'refused') }))
      .filter(({ name, decisions }) => name !== 'other' && decisions > 0)
      .sort((a, b) => b.decisions - a.decisions || byBytes(a.name, b.name))
      .slice(0, seriesMax)
      .map(({ name }) => name)
    const series = groups(outcomes, (outcome) => (ranked.includes(nameOf(outcome)) ? nameOf(outcome) : 'other'))
    return [...ranked, 'other']
      .map((name) => ({ name, points: points(series.get(name) ?? [], stepMs) }))
      .filter(({ points: list }) => list.length > 0)
  }

  top({ filter, of, by, search = '', limit, ...range }: TopQuery): TopRow[] {
    const outcomes = this.#outcomes(rollupOf(filter, of), range, filter)
    return [...groups(outcomes, ({ names }) => JSON.stringify([names[of], names.kind])).values()]
      .map((list) => ({
        name: list[0]?.names[of] ?? '',
        ...(of === 'client' ? { kind: list[0]?.names.kind as ClientKind } : {}),
        allowed: sum(list, 'allowed'),
        refused: sum(list, 'refused'),
        near_limit: sum(list, 'near_limit'),
      }))
      .filter((row) => row[by] > 0 && row.name.toLowerCase().includes(search.toLowerCase()))
      .sort((a, b) => b[by] - a[by] || byBytes(a.name, b.name) || byBytes(a.kind ?? '', b.kind ?? ''))
      .slice(0, limit)
  }

  refusedClients({ filter, limit, ...range }: RefusedClientsQuery): RefusedClient[] {
    const refused = this.events({ ...range, filter: { ...filter, result: 'refused' }, limit: Number.MAX_SAFE_INTEGER })
    const clients = refused.flatMap(({ client_id, api_key, ip }): { kind: ClientKind; name: string }[] => {
      if (client_id !== null) return [{ kind: 'user', name: client_id }]
      if (api_key !== null) return [{ kind: 'api_key', name: api_key }]
      return ip === null ? [] : [{ kind: 'ip', name: ip }]
    })
    return [...groups(clients, (client) => JSON.stringify([client.name, client.kind])).values()]
      .map((list) => ({ ...(list[0] as { kind: ClientKind; name: string }), refused: list.length }))
      .sort((a, b) => b.refused - a.refused || byBytes(a.name, b.name) || byBytes(a.kind, b.kind))
      .slice(0, limit)
  }

  client(kind: ClientKind, client: string, range: Range, stepMs: number): Omit<TopRow, 'name'> & { points: Point[] } {
    const own = this.#outcomes('clients', range, {}).filter(
      ({ names }) => names.kind === kind && names.client === client,
    )
    const [allowed, refused, near_limit] = [sum(own, 'allowed'), sum(own, 'refused'), sum(own, 'near_limit')]
    return { allowed, refused, near_limit, points: points(own, stepMs) }
  }

  latency(range: Range, stepMs: number): LatencyPoint[] {
    const rows = this.#batches.flatMap(({ latency }) => latency).filter(({ time }) => isIn(minuteOf(time), range))
    return [...groups(rows, ({ time }) => Math.floor((time * 1000) / stepMs) * stepMs)]
      .sort(([a], [b]) => a - b)
      .map(([atMs, list]) => ({
        atMs,
        buckets: [...groups(list, ({ le_us }) => le_us)]
          .map(([le, ofBucket]): [number, number] => [le, ofBucket.reduce((total, { count }) => total + count, 0)])
          .sort(([a], [b]) => (a === -1 ? Number.POSITIVE_INFINITY : a) - (b === -1 ? Number.POSITIVE_INFINITY : b)),
      }))
  }

  summary({ filter, ...range }: Range & { filter: Filter }): Summary {
    const rollup = rollupOf(filter, undefined)
    const outcomes = this.#outcomes(rollup, range, filter)
    const sources = [...groups(outcomes, ({ names }) => names.source as EventSource)]
      .map(([name, list]) => ({ name, count: sum(list, 'allowed') + sum(list, 'refused') }))
      .filter(({ count }) => count > 0)
      .sort((a, b) => b.count - a.count || byBytes(a.name, b.name))
    const [allowed, refused] = [sum(outcomes, 'allowed'), sum(outcomes, 'refused')]
    return { allowed, refused, sources: rollup === 'counts' ? sources : [] }
  }

  events({ filter, limit, ...range }: EventsQuery): DecisionEvent[] {
    return this.#batches
      .flatMap(({ events }) => events)
      .filter((event) => isIn(event.timestamp, range) && matches(event, filter))
      .sort((a, b) => b.timestamp - a.timestamp || byBytes(b.event_id, a.event_id))
      .slice(0, limit)
  }

  #outcomes(rollup: RollupName, range: Range, filter: Filter): Outcome[] {
    const { result, ...names } = filter
    const wanted = Object.entries(names).filter(([, value]) => value !== undefined)
    return this.#batches
      .flatMap((batch) => OUTCOMES[rollup](batch))
      .filter(({ minuteMs }) => isIn(minuteMs, range))
      .filter((outcome) => wanted.every(([name, value]) => outcome.names[name as Dimension] === value))
      .map((outcome) => ({
        ...outcome,
        ...(result === 'refused' ? { allowed: 0, near_limit: 0 } : {}),
        ...(result === 'allowed' ? { refused: 0 } : {}),
      }))
  }
}

const OUTCOMES: Record<RollupName, (batch: Batch) => Outcome[]> = {
  counts: ({ counts }) =>
    counts.map(({ time, count, ...names }) => ({
      minuteMs: minuteOf(time),
      names,
      allowed: names.result === 'allowed' ? count : 0,
      refused: names.result === 'refused' ? count : 0,
      near_limit: 0,
    })),
  limits: ({ limits }) =>
    limits.map(({ time, rule, limit, mode: _, ...numbers }) => ({
      minuteMs: minuteOf(time),
      names: { rule, limit: `${rule}/${limit}` },
      ...numbers,
    })),
  clients: ({ clients }) =>
    clients.map(({ time, kind, client, ...numbers }) => ({
      minuteMs: minuteOf(time),
      names: { kind, client },
      ...numbers,
    })),
}

function points(outcomes: readonly Outcome[], stepMs: number): Point[] {
  return [...groups(outcomes, ({ minuteMs }) => Math.floor(minuteMs / stepMs) * stepMs)]
    .map(([atMs, list]) => ({ atMs, allowed: sum(list, 'allowed'), refused: sum(list, 'refused') }))
    .filter(({ allowed, refused }) => allowed + refused > 0)
    .sort((a, b) => a.atMs - b.atMs)
}

function matches(event: DecisionEvent, filter: EventsQuery['filter']): boolean {
  const { rule, plan, tenant, endpoint, result, source, kind, client } = filter
  const clients = { user: event.client_id, api_key: event.api_key, ip: event.ip }
  const candidates = kind === undefined ? Object.values(clients) : [clients[kind]]
  return (
    (rule === undefined || (event.rule_id ?? 'none') === rule) &&
    (plan === undefined || (event.plan ?? 'none') === plan) &&
    (tenant === undefined || (event.tenant ?? 'none') === tenant) &&
    (endpoint === undefined || event.endpoint_pattern === endpoint) &&
    (result === undefined || event.allowed === (result === 'allowed')) &&
    (source === undefined || event.source === source) &&
    (client === undefined || candidates.includes(client)) &&
    (kind === undefined || clients[kind] !== null)
  )
}

function groups<T, K>(items: readonly T[], keyOf: (item: T) => K): Map<K, T[]> {
  const found = new Map<K, T[]>()
  for (const item of items) found.set(keyOf(item), [...(found.get(keyOf(item)) ?? []), item])
  return found
}

function sum(outcomes: readonly Outcome[], column: 'allowed' | 'refused' | 'near_limit'): number {
  return outcomes.reduce((total, outcome) => total + outcome[column], 0)
}

function minuteOf(second: number): number {
  return Math.floor(second / 60) * 60_000
}

function isIn(ms: number, { fromMs, toMs }: Range): boolean {
  return ms >= fromMs && ms < toMs
}

function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b))
}
