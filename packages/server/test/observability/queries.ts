// Queries and metric names used in deploy/, read from its files.

import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parse } from 'yaml'
import { ruleFiles } from './prometheus-process.ts'

const DASHBOARD = fileURLToPath(new URL('../../../../deploy/grafana/sluice.json', import.meta.url))

export type Rule = {
  readonly expr: string
  readonly record?: string
  readonly alert?: string
  readonly labels?: Readonly<Record<string, string>>
  readonly annotations?: Readonly<Record<string, string>>
}

/** Every recording rule and alert. */
export function deployedRules(): readonly Rule[] {
  return ruleFiles().flatMap((file) => {
    const { groups } = parse(readFileSync(file, 'utf8')) as { groups: { rules: Rule[] }[] }
    return groups.flatMap(({ rules }) => rules)
  })
}

type Variable = { readonly name: string; readonly type: string; readonly query: string | { readonly query: string } }
type Target = { readonly refId: string; readonly expr: string; readonly datasource: { readonly uid: string } }
type GridPosition = { readonly x: number; readonly y: number; readonly w: number; readonly h: number }
export type Panel = {
  readonly id: number
  readonly title: string
  readonly type: string
  readonly gridPos: GridPosition
  readonly targets?: readonly Target[]
}
export type Dashboard = {
  readonly uid: string
  readonly schemaVersion: number
  readonly templating: { readonly list: readonly Variable[] }
  readonly panels: readonly Panel[]
}

export function dashboard(): Dashboard {
  return JSON.parse(readFileSync(DASHBOARD, 'utf8')) as Dashboard
}

/** Queries of the dashboard as Grafana sends them with all variables at `All`, by panel. */
export function dashboardQueries(): readonly { readonly title: string; readonly expr: string }[] {
  return dashboard().panels.flatMap(({ title, targets = [] }) => {
    return targets.map(({ refId, expr }) => ({
      title: `${title} (${refId})`,
      expr: expr.replaceAll('$__rate_interval', '1m').replaceAll(/\$(job|instance)\b/g, '.*'),
    }))
  })
}

/** Names in a query: those of scraped metrics, and those of recording rules, which contain a colon. */
export function namesIn(expr: string): string[] {
  const withoutText = expr.replaceAll(/"(?:[^"\\]|\\.)*"/g, '""')
  const words = withoutText.match(/[a-zA-Z_:][a-zA-Z0-9_:]*/g) ?? []
  return words.filter((word) => word.includes(':sluice_') || /^(sluice|process|nodejs)_/.test(word))
}
