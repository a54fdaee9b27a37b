// The scenarios by name, in the order of the table. Loaded when run: a process that measures memory holds nothing else.

import type { Scenario } from './report.ts'

export const SCENARIOS = [
  'memory',
  'memory-keys',
  'rules',
  'redis',
  'redis-multi',
  'http',
  'gateway',
  'middleware',
  'middleware-redis',
  'leased',
  'leased-nodes',
  'decision-latency',
  'outage',
  'refused',
  'cluster',
  'cluster-leased',
  'regions',
  'rules-apply',
  'propagation',
  'scale',
] as const
export type ScenarioName = (typeof SCENARIOS)[number]

export async function loadScenario(name: ScenarioName): Promise<Scenario> {
  const { scenario } = (await import(`./scenarios/${name}.js`)) as { scenario: Scenario }
  return scenario
}

export function isScenario(name: string): name is ScenarioName {
  return (SCENARIOS as readonly string[]).includes(name)
}
