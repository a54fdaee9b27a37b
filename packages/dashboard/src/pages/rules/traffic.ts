// Requests per rule: what its limits allowed and refused, shadow rules included.

import { useMemo } from 'preact/hooks'
import type { Range } from '../../location.ts'
import { type Resource, useApi } from '../../resource.ts'

const REFRESH_MS = 15_000

type Point = { readonly at: string; readonly allowed: number; readonly refused: number }
export type Timeline = {
  readonly from: string
  readonly to: string
  readonly step_seconds: number
  readonly series: readonly { readonly name: string; readonly points: readonly Point[] }[]
}

export type RuleTraffic = {
  readonly times: readonly number[]
  readonly allowed: readonly number[]
  readonly refused: readonly number[]
  readonly allowedTotal: number
  readonly refusedTotal: number
}

/** Timeline by limit, `<rule_id>/<limit name>`; a rule with several limits counts its busiest. */
export function useTraffic(range: Range): {
  readonly timeline: Resource<Timeline>
  readonly byRule: ReadonlyMap<string, RuleTraffic>
} {
  const params = range.seconds < 300 ? { from: '5m' } : range.params
  const timeline = useApi<Timeline>('/analytics/timeline', { ...params, by: 'limit' }, { refreshMs: REFRESH_MS })
  const byRule = useMemo(() => (timeline.data === undefined ? new Map() : trafficOf(timeline.data)), [timeline.data])
  return { timeline, byRule }
}

export function trafficOf({ series, from, to, step_seconds: step }: Timeline): ReadonlyMap<string, RuleTraffic> {
  const stepMs = step * 1000
  const first = Math.floor(Date.parse(from) / stepMs) * stepMs
  const times: number[] = []
  for (let at = first; at < Date.parse(to); at += stepMs) times.push(at)
  const byRule = new Map<string, RuleTraffic>()
  for (const { name, points } of series) {
    const ruleId = name.slice(0, name.lastIndexOf('/'))
    const found = new Map(points.map((point) => [Date.parse(point.at), point]))
    const allowed = times.map((at) => found.get(at)?.allowed ?? 0)
    const refused = times.map((at) => found.get(at)?.refused ?? 0)
    const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0)
    const traffic = { times, allowed, refused, allowedTotal: sum(allowed), refusedTotal: sum(refused) }
    const known = byRule.get(ruleId)
    if (known === undefined || known.refusedTotal < traffic.refusedTotal) byRule.set(ruleId, traffic)
  }
  return byRule
}
