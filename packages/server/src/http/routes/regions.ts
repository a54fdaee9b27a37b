// GET /api/v1/regions: how this region shares limits with others, and how it stands with the global Redis. Not there
// on a node that is in no region.

import type { FastifyInstance } from 'fastify'
import { compileLimit, type Limiter, type Rule, type RuleLimit } from 'sluice'
import type { RegionStore, Shares } from 'sluice/regions'
import type { NodeWorkers } from '../../workers/node-workers.ts'
import { answers } from '../bodies/schemas.ts'

export const REGIONS_PATH = '/api/v1/regions'

const SHARES = {
  type: 'object',
  required: ['home_share', 'weights'],
  properties: {
    home_share: { type: 'number', description: 'How much of each limit is split by weight.' },
    weights: { type: 'object', additionalProperties: { type: 'number' } },
  },
}

const ANSWER = {
  type: 'object',
  required: [
    ...['region', 'shares', 'next_shares', 'cut_off', 'lag_ms', 'clock_difference_ms', 'home_units'],
    ...['borrowed_units', 'limits'],
  ],
  properties: {
    region: { type: 'string' },
    shares: SHARES,
    next_shares: { ...SHARES, type: ['object', 'null'], description: 'While they are being changed.' },
    cut_off: { type: 'boolean', description: 'The global Redis does not answer: homes only, and what nodes hold.' },
    lag_ms: { type: 'number', description: 'How long its last answer took, or for how long there was none.' },
    clock_difference_ms: { type: 'number', description: 'How far the global clock is ahead of that of the region.' },
    home_units: { type: 'integer', description: 'Paid by homes, on this node.' },
    borrowed_units: { type: 'integer', description: 'Paid by pools, on this node.' },
    limits: {
      type: 'array',
      description: 'Of all rules with spread: global.',
      items: {
        type: 'object',
        required: ['rule_id', 'name', 'plan', 'limit', 'homes', 'pool', 'bound'],
        properties: {
          rule_id: { type: 'string' },
          name: { type: 'string', description: 'Name of the limit within its rule.' },
          plan: { type: ['string', 'null'] },
          limit: { type: 'integer' },
          homes: { type: 'object', additionalProperties: { type: 'integer' }, description: 'Units of each region.' },
          pool: { type: 'integer', description: 'Units that all lease from.' },
          bound: { type: 'integer', description: 'Most that an interval can see, with clocks as they are measured.' },
        },
      },
    },
  },
}

export type RegionsParts = {
  readonly limiter: Limiter
  readonly region: RegionStore | undefined
  readonly workers: NodeWorkers
}

const TOPIC = 'region'

export function regionsRoute(app: FastifyInstance, { limiter, region, workers }: RegionsParts): void {
  if (region === undefined) return
  const schema = {
    operationId: 'regions',
    summary: 'How regions share limits',
    description: 'As this node sees it. The units are those of its workers since they started.',
    tags: ['health'],
    response: answers(ANSWER),
  }
  workers.answer(TOPIC, () => ({ stats: region.stats(), cutOff: region.isCutOff }))
  app.get(REGIONS_PATH, { schema, config: { access: 'viewer' } }, async () => {
    const stats = region.stats()
    const { answers: all } = await workers.gather<WorkerRegion>(TOPIC)
    const each = (name: string) => all.map((one) => one.stats[name] ?? 0)
    return {
      region: region.name,
      shares: sharesOf(region.shares),
      next_shares: region.nextShares === undefined ? null : sharesOf(region.nextShares),
      cut_off: all.some(({ cutOff }) => cutOff),
      lag_ms: rounded(Math.max(...each('region_lag_ms'))),
      clock_difference_ms: rounded(stats.region_clock_difference_ms),
      home_units: sum(each('region_home_units')),
      borrowed_units: sum(each('region_borrowed_units')),
      limits: limiter.rules.flatMap((rule) => (isShared(rule) ? limitsOf(rule, region, stats) : [])),
    }
  })
}

type WorkerRegion = { readonly stats: Readonly<Record<string, number>>; readonly cutOff: boolean }

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}

function sharesOf({ homeShare = 0.1, weights }: Shares): object {
  return { home_share: homeShare, weights }
}

function isShared({ spread, enabled }: Rule): boolean {
  return spread === 'global' && enabled
}

function limitsOf(rule: Rule, region: RegionStore, stats: Readonly<Record<string, number>>): object[] {
  const { rule_id, algorithm } = rule
  const told = (numbers: RuleLimit, plan: string | null) => {
    const { name, limit: units, window_seconds, burst } = numbers
    if (units === 0) return []
    const windowUs = Math.round(window_seconds * 1e6)
    const limit = compileLimit({ id: rule_id, algorithm, units, windowUs, ...(burst === undefined ? {} : { burst }) })
    const { homes, pool } = region.splitOf(limit)
    // Windows of homes and pools begin together only where clocks agree.
    const apart = algorithm.endsWith('_window') && (stats.region_window_excess ?? 0) > 0
    const excess = apart ? [...homes.values()].reduce((sum, home) => sum + home, 0) : 0
    return [{ rule_id, name, plan, limit: units, homes: Object.fromEntries(homes), pool, bound: units + excess }]
  }
  const byPlan = Object.entries(rule.by_plan).flatMap(([plan, own]) => own.flatMap((numbers) => told(numbers, plan)))
  return [...rule.limits.flatMap((numbers) => told(numbers, null)), ...byPlan]
}

function rounded(ms = 0): number {
  return Math.round(ms * 10) / 10
}
