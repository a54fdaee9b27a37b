// Capacity model: measures the cost of a check with one service over HTTP, extrapolates to the load of
// bench/capacity.json, and verifies it with eight services. Writes the tables of docs/guides/capacity.md.

import { readFileSync, writeFileSync } from 'node:fs'
import { type Capacity, type CapacityInputs, type CheckCosts, capacityFor, nodeUsAt } from '../capacity-model.ts'
import { figure, median, progress, resultOf } from '../measure.ts'
import type { Outcome, Scenario } from '../report.ts'
import { ServiceTestbed } from '../service-testbed.ts'
import { everyId, freshKeys, seeded, zipf } from '../zipf.ts'

const GUIDE = new URL('../../../docs/guides/capacity.md', import.meta.url)
const INPUTS = new URL('../../capacity.json', import.meta.url)
const START = '<!-- scale:start -->'
const END = '<!-- scale:end -->'

const PROCESSES = 8
/** Checks per service in a round. */
const CHECKS = 8000
const USERS = 20_000
const WARMUPS = 2

type Costs = { readonly seldom: CheckCosts; readonly often: CheckCosts; readonly bytesPerUser: number }

export const scenario: Scenario = {
  what: 'capacity model: eight services, predicted from one',
  targets: { model_over_measured: { atLeast: 0.8 }, measured_over_model: { atLeast: 0.8 } },
  async run({ rounds = 3 }) {
    const inputs = JSON.parse(readFileSync(INPUTS, 'utf8')) as CapacityInputs
    const rules = Array.from({ length: inputs.rules }, (_, number) => ruleOf(number))
    const costs = await ServiceTestbed.with(1, rules, (testbed) => costsOf(testbed, rounds))
    const measured = await ServiceTestbed.with(PROCESSES, rules, (testbed) => settled(testbed, rounds))
    const modelUs =
      nodeUsAt(measured.redisRequests, costs.seldom, costs.often) + redisUsAt(measured.redisRequests, costs)
    const measuredUs = measured.nodeUs + measured.redisUs
    const check = { processes: PROCESSES, redisRequests: measured.redisRequests, modelUs, measuredUs }
    writeGuide(tableOf(inputs, costs, check))
    return outcomeOf(costs, modelUs, measuredUs)
  },
}

function ruleOf(number: number): object {
  return { rule_id: `rule_${number}`, scope: 'per_user', limit: 6000, window_seconds: 60 }
}

async function costsOf(testbed: ServiceTestbed, rounds: number): Promise<Costs> {
  const emptyBytes = await testbed.redis.usedBytes()
  await testbed.check(freshKeys(USERS, everyId(USERS)))
  const bytesPerUser = ((await testbed.redis.usedBytes()) - emptyBytes) / USERS
  // Worst case for leases: every user makes one check per round, so no lease is used twice.
  const seldom = await repeated(rounds, (round) =>
    testbed.check(freshKeys(CHECKS, everyId(CHECKS)).map((user) => `${round}_${user}`)),
  )
  return { seldom, often: await settled(testbed, rounds), bytesPerUser }
}

/** Zipf-distributed users, after a warm-up of code and lease sizes. */
async function settled(testbed: ServiceTestbed, rounds: number): Promise<CheckCosts> {
  const choose = zipf(USERS, seeded(1))
  const round = () => testbed.check(freshKeys(CHECKS * testbed.services, choose))
  for (let count = 0; count < WARMUPS; count += 1) await round()
  return repeated(rounds, round)
}

async function repeated(rounds: number, work: (round: number) => Promise<CheckCosts>): Promise<CheckCosts> {
  const all: CheckCosts[] = []
  for (let round = 0; round < rounds; round += 1) {
    const costs = await work(round)
    const shown = Object.entries(costs).map(([name, value]) => `${name} ${figure(value)}`)
    progress(`round ${round + 1}/${rounds}: ${shown.join(', ')}`)
    all.push(costs)
  }
  const middle = (field: keyof CheckCosts) => median(all.map((costs) => costs[field]))
  return {
    nodeUs: middle('nodeUs'),
    redisUs: middle('redisUs'),
    networkBytes: middle('networkBytes'),
    redisRequests: middle('redisRequests'),
  }
}

/** Redis uses no CPU without requests. */
function redisUsAt(redisRequests: number, { seldom }: Costs): number {
  return (redisRequests * seldom.redisUs) / seldom.redisRequests
}

function outcomeOf({ seldom, often, bytesPerUser }: Costs, modelUs: number, measuredUs: number): Outcome {
  return {
    results: [
      resultOf('no leases', [seldom.nodeUs], 'µs of node/check'),
      resultOf('no leases', [seldom.redisUs], 'µs of Redis/check'),
      resultOf('Zipf users', [often.nodeUs], 'µs of node/check'),
      resultOf('Zipf users', [often.redisUs], 'µs of Redis/check'),
      resultOf('Zipf users', [often.redisRequests], 'requests to Redis/check'),
      resultOf('in Redis', [bytesPerUser], 'B/user'),
    ],
    ratios: { model_over_measured: modelUs / measuredUs, measured_over_model: measuredUs / modelUs },
  }
}

type Check = {
  readonly processes: number
  readonly redisRequests: number
  readonly modelUs: number
  readonly measuredUs: number
}

function tableOf(inputs: CapacityInputs, costs: Costs, check: Check): string {
  const plans = [costs.seldom, costs.often].map((one) => capacityFor(inputs, one, costs.bytesPerUser))
  const row = (name: string, read: (costs: CheckCosts) => string) =>
    `| ${name} | ${[costs.seldom, costs.often].map(read).join(' | ')} |`
  const planned = (name: string, read: (plan: Capacity) => string) => `| ${name} | ${plans.map(read).join(' | ')} |`
  const dollars = (value: number) => `$${figure(value)}`
  const { modelUs, measuredUs } = check
  const { requests_per_second: rate, users, rules } = inputs
  const load = `${figure(rate)} requests/s, ${figure(users)} users × ${rules} rules`
  return [
    '',
    "| measured, for one check | no leases | users by Zipf's law |",
    '|---|---|---|',
    row('requests to Redis', ({ redisRequests }) => figure(redisRequests)),
    row('CPU of the service, over HTTP', ({ nodeUs }) => `${figure(nodeUs)} µs`),
    row('CPU of Redis', ({ redisUs }) => `${figure(redisUs)} µs`),
    row('network between them', ({ networkBytes }) => `${figure(networkBytes)} B`),
    `| memory of Redis, for one user | ${figure(costs.bytesPerUser)} B | ${figure(costs.bytesPerUser)} B |`,
    '',
    `| ${load} | no leases | users by Zipf's law |`,
    '|---|---|---|',
    planned(`nodes of ${inputs.cores_per_node} cores`, ({ nodes }) => figure(nodes)),
    planned('primaries of a Cluster, and slot groups', ({ primaries }) => figure(primaries)),
    planned('memory, without replicas', ({ memoryGb }) => `${figure(memoryGb)} GB`),
    planned('network', ({ networkGbitPerSecond }) => `${figure(networkGbitPerSecond)} Gbit/s`),
    planned('nodes, a month', ({ monthlyCost }) => dollars(monthlyCost.nodes)),
    planned('Redis, a month', ({ monthlyCost }) => dollars(monthlyCost.redis + monthlyCost.memory)),
    planned('network, a month', ({ monthlyCost }) => dollars(monthlyCost.network)),
    '',
    `Test of the model: ${check.processes} services on one Redis, users by Zipf's law,`,
    `${figure(check.redisRequests)} requests to Redis per check. Predicted: ${figure(modelUs)} µs of CPU per check,`,
    `nodes and Redis together. Measured:`,
    `${figure(measuredUs)} µs, so the model predicts ${figure(Math.abs(modelUs / measuredUs - 1) * 100)} % ` +
      `${modelUs < measuredUs ? 'less' : 'more'} than measured.`,
    '',
  ].join('\n')
}

function writeGuide(table: string): void {
  const page = readFileSync(GUIDE, 'utf8')
  const [start, end] = [page.indexOf(START), page.indexOf(END)]
  if (start < 0 || end < start) throw new Error(`docs/guides/capacity.md lacks ${START} or ${END}`)
  writeFileSync(GUIDE, page.slice(0, start + START.length) + table + page.slice(end))
}
