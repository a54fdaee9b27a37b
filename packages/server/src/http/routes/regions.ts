// GET /api/v1/regions: how this region shares limits with others, and the state of the global Redis. Absent on a node
// without a region.

import type { FastifyInstance } from 'fastify'
import { ALGORITHMS, compileLimit, type Limiter, type Rule, type RuleLimit, type StoreStats, storeStats } from 'sluice'
import type { RegionStore, Shares } from 'sluice/regions'
import type { NodeWorkers } from '../../workers/node-workers.ts'
import { answers } from '../bodies/schemas.ts'

export const REGIONS_PATH = '/api/v1/regions'

const SHARES = {
  type: 'object',
  required: ['home_share', 'weights'],
  properties: {
    home_share: { type: 'number', description: 'Share of each limit that is split by weight.' },
    weights: { type: 'object', additionalProperties: { type: 'number' } },
  },
}

const ANSWER = {
  type: 'object',
  required: [
    ...['region', 'shares', 'next_shares', 'isolated', 'lag_ms', 'clock_difference_ms', 'home_units'],
    ...['borrowed_units', 'limits'],
  ],
  properties: {
    region: { type: 'string' },
    shares: SHARES,
    next_shares: { ...SHARES, type: ['object', 'null'], description: 'Planned shares during a change.' },
    isolated: {
      type: 'boolean',
      description: 'The global Redis is unreachable: only homes and held leases are available.',
    },
    lag_ms: { type: 'number', description: 'Last round trip, or time since the last reply.' },
    clock_difference_ms: { type: 'number', description: 'Global clock minus clock of the region.' },
    home_units: { type: 'integer', description: 'Units taken from homes by this node.' },
    borrowed_units: { type: 'integer', description: 'Units taken from pools by this node.' },
    limits: {
      type: 'array',
      description: 'Limits of all rules with spread: global.',
      items: {
        type: 'object',
        required: ['rule_id', 'name', 'plan', 'limit', 'homes', 'pool', 'bound'],
        properties: {
          rule_id: { type: 'string' },
          name: { type: 'string', description: 'Name of the limit within its rule.' },
          plan: { type: ['string', 'null'] },
          limit: { type: 'integer' },
          homes: { type: 'object', additionalProperties: { type: 'integer' }, description: 'Units of each region.' },
          pool: { type: 'integer', description: 'Units that all regions lease from.' },
          bound: { type: 'integer', description: 'Maximum units per interval, given the measured clock difference.' },
        },
      },
    },
  },
}

export type RegionsDeps = {
  readonly limiter: Limiter
  readonly region: RegionStore | undefined
  readonly workers: NodeWorkers
}

const TOPIC = 'region'

export function regionsRoute(app: FastifyInstance, { limiter, region, workers }: RegionsDeps): void {
  if (region === undefined) return
  const schema = {
    operationId: 'regions',
    summary: 'How regions share limits',
    description: 'As seen by this node. Units are counted since its workers started.',
    tags: ['health'],
    response: answers(ANSWER),
  }
  workers.answer(TOPIC, () => ({ stats: storeStats(region), isolated: region.isIsolated }))
  app.get(REGIONS_PATH, { schema, config: { access: 'viewer' } }, async () => {
    const stats = storeStats(region)
    const { answers: all } = await workers.gather<WorkerRegion>(TOPIC)
    const each = (name: keyof StoreStats) => all.map((worker) => worker.stats[name])
    return {
      region: region.name,
      shares: sharesOf(region.shares),
      next_shares: region.nextShares === undefined ? null : sharesOf(region.nextShares),
      isolated: all.some(({ isolated }) => isolated),
      lag_ms: rounded(Math.max(...each('region_lag_ms'))),
      clock_difference_ms: rounded(stats.region_clock_difference_ms),
      home_units: sum(each('region_home_units')),
      borrowed_units: sum(each('region_borrowed_units')),
      limits: limiter.rules.flatMap((rule) => (isShared(rule) ? limitsOf(rule, region, stats) : [])),
    }
  })
}

type WorkerRegion = { readonly stats: StoreStats; readonly isolated: boolean }

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}

function sharesOf({ homeShare = 0.1, weights }: Shares): object {
  return { home_share: homeShare, weights }
}

function isShared({ spread, enabled }: Rule): boolean {
  return spread === 'global' && enabled
}

function limitsOf(rule: Rule, region: RegionStore, stats: StoreStats): object[] {
  const { rule_id, algorithm } = rule
  const describe = (numbers: RuleLimit, plan: string | null) => {
    const { name, limit: units, window_seconds, burst } = numbers
    if (units === 0) return []
    const windowUs = Math.round(window_seconds * 1e6)
    const limit = compileLimit({ id: rule_id, algorithm, units, windowUs, ...(burst === undefined ? {} : { burst }) })
    const { homes, pool } = region.splitOf(limit)
    // Windows of homes and pools begin together only if the clocks agree.
    const windowsDiffer = ALGORITHMS[algorithm].windows > 0 && stats.region_window_excess > 0
    const excess = windowsDiffer ? [...homes.values()].reduce((sum, home) => sum + home, 0) : 0
    return [{ rule_id, name, plan, limit: units, homes: Object.fromEntries(homes), pool, bound: units + excess }]
  }
  const byPlan = Object.entries(rule.by_plan).flatMap(([plan, own]) =>
    own.flatMap((numbers) => describe(numbers, plan)),
  )
  return [...rule.limits.flatMap((numbers) => describe(numbers, null)), ...byPlan]
}

function rounded(ms: number): number {
  return Math.round(ms * 10) / 10
}
