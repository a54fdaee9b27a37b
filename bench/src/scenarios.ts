// Scenarios by name, in the order of the table. Loaded on demand, so that memory measurements load nothing else.

import type { Scenario } from './report.ts'

export const SCENARIOS = [
  'memory',
  'memory-keys',
  'rules',
  'exceptions',
  'rollouts',
  'redis',
  'redis-multi',
  'redis-quiet',
  'http',
  'grpc',
  'grpc-peer',
  'gateway',
  'middleware',
  'middleware-redis',
  'leased',
  'leased-nodes',
  'remote-lease',
  'decision-latency',
  'outage',
  'refused',
  'cluster',
  'cluster-leased',
  'regions',
  'rules-apply',
  'propagation',
  'events',
  'analytics',
  'replay',
  'scale',
  'startup',
  'turns',
] as const
export type ScenarioName = (typeof SCENARIOS)[number]

export async function loadScenario(name: ScenarioName): Promise<Scenario> {
  const { scenario } = (await import(`./scenarios/${name}.js`)) as { scenario: Scenario }
  return scenario
}

export function isScenario(name: string): name is ScenarioName {
  return (SCENARIOS as readonly string[]).includes(name)
}
