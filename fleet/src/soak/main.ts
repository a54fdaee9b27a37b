// `npm run soak`: long versions of tests that `npm test` runs in seconds, one after the other. Exits with 1 if a
// guarantee was broken.

import { type Guarantee, reportText } from '../guarantees.ts'
import { runFleet } from '../run-fleet.ts'
import { inTemporaryFolder } from '../temporary-folder.ts'
import { Testbed } from '../testbed.ts'
import { dashboard } from './dashboard.ts'
import { events } from './events.ts'
import { logShipping } from './log-shipping.ts'
import { otlp } from './otlp.ts'
import { reconnect } from './reconnect.ts'
import { reshard } from './reshard.ts'
import { rollingRestart } from './rolling-restart.ts'
import { rollingUpgrade } from './rolling-upgrade.ts'
import { rollouts } from './rollouts.ts'
import { clients, quotas } from './server-tests.ts'

/** Sizes; the short version is for `npm test`. */
const LONG = {
  seconds: 300,
  nodes: 2,
  rate: 300,
  moves: 6,
  outageSeconds: 10,
  events: 50_000,
  requests: 2000,
  rollouts: 12,
}
const SHORT = { seconds: 8, nodes: 1, rate: 150, moves: 1, outageSeconds: 1, events: 5000, requests: 50, rollouts: 1 }

const EVENTS_LONG = { seconds: 60, rate: 10_000, allRate: 2000, outageSeconds: 10, isShort: false }
const EVENTS_SHORT = { seconds: 3, rate: 2000, allRate: 500, outageSeconds: 1, isShort: true }

type Scenario = (size: typeof LONG, end: AbortSignal) => Promise<readonly Guarantee[]>

const SCENARIOS: Readonly<Record<string, Scenario>> = {
  fleet: async (size, end) => {
    const testbed = await Testbed.start(size.nodes)
    return runFleet(testbed, size, end).finally(() => testbed.stop())
  },
  'rolling-restart': ({ nodes }) => rollingRestart(nodes),
  'rolling-upgrade': () => rollingUpgrade(),
  reshard: ({ moves }) => reshard(moves),
  reconnect: ({ outageSeconds }) => reconnect(outageSeconds),
  dashboard: (size, end) => dashboard({ seconds: size === LONG ? 600 : 60, rate: 2000 }, end),
  events: (size, end) => events(size === LONG ? EVENTS_LONG : EVENTS_SHORT, end),
  'log-shipping': ({ events }) => logShipping(events),
  otlp: ({ requests }) => otlp(requests),
  clients: async () => clients(),
  quotas: async (size) => quotas(size === LONG ? 180 : 60),
  rollouts: ({ rollouts: runs, seconds }) => rollouts({ runs, stepSeconds: seconds === LONG.seconds ? 40 : 20 }),
}

const HELP = `Usage: npm run soak -- [--short] [${Object.keys(SCENARIOS).join('|')}] …

  fleet            five minutes of load on two regions, a primary killed halfway
  rolling-restart  every service node replaced by one with other scripts, under load
  rolling-upgrade  a node of an earlier version replaced: limits hold, and a ban waits until it is gone
  reshard          1000 slots of a Cluster moved back and forth under load
  reconnect        50 clients reconnect after an outage
  dashboard        two pages open in Chromium for ten minutes at 2,000 decisions a second: memory and frames
  events           10,000 decisions a second into each event sink, and again with the sink killed halfway
  log-shipping     JSON lines to a real Elasticsearch with the rsyslog configuration of the docs
  rollouts         bad, harmless and spiky rule changes, and silence, on four nodes, with the default guard
  otlp             traces and metrics sent to a real OpenTelemetry collector (built with Go)
  clients          clients in Go, Java and Python, built with their tools, against the gRPC port and the gateway
  quotas           three minutes of load through one and three real Envoys with quotas (RLQS), fetched with pip

  --short          a few seconds of each (dashboard, quotas: a minute); events: all sinks together only
`

process.exitCode = await main(process.argv.slice(2))

async function main(args: readonly string[]): Promise<number> {
  const names = args.filter((arg) => arg !== '--short')
  const size = names.length < args.length ? SHORT : LONG
  const unknownName = names.find((name) => !(name in SCENARIOS))
  if (unknownName !== undefined) {
    process.stdout.write(HELP)
    return unknownName === '--help' ? 0 : 2
  }
  return inTemporaryFolder('soak', async (end) => {
    let held = true
    for (const name of names.length > 0 ? names : Object.keys(SCENARIOS)) {
      process.stdout.write(`\n${name}\n`)
      const guarantees = (await SCENARIOS[name]?.(size, end)) ?? []
      if (guarantees.length > 0) process.stdout.write(reportText(guarantees)) // none: skipped
      held &&= guarantees.every((guarantee) => guarantee.held)
      if (end.aborted) break
    }
    return held
  })
}
