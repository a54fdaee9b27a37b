// The capacity model: what a check costs a node and Redis, measured with one service over HTTP, extrapolated to the
// load of bench/capacity.json, and put to the test by eight services. Writes the tables of docs/guides/capacity.md.

import { readFileSync, writeFileSync } from 'node:fs'
import { type Capacity, type CapacityInputs, type CheckCosts, capacityFor, nodeUsAt } from '../capacity-model.ts'
import { figure, median, progress, resultOf } from '../measure.ts'
import type { Outcome, Scenario } from '../report.ts'
import { ServiceBed } from '../service-bed.ts'
import { each, freshKeys, seeded, zipf } from '../zipf.ts'

const GUIDE = new URL('../../../docs/guides/capacity.md', import.meta.url)
const INPUTS = new URL('../../capacity.json', import.meta.url)
const START = '<!-- scale:start -->'
const END = '<!-- scale:end -->'

const PROCESSES = 8
/** Of each service, in a round. */
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
    const costs = await ServiceBed.with(1, rules, (bed) => costsOf(bed, rounds))
    const measured = await ServiceBed.with(PROCESSES, rules, (bed) => settled(bed, rounds))
    const modelUs = nodeUsAt(measured.asked, costs.seldom, costs.often) + redisUsAt(measured.asked, costs)
    const measuredUs = measured.nodeUs + measured.redisUs
    const check = { processes: PROCESSES, asked: measured.asked, modelUs, measuredUs }
    writeGuide(tableOf(inputs, costs, check))
    return outcomeOf(costs, modelUs, measuredUs)
  },
}

function ruleOf(number: number): object {
  return { rule_id: `rule_${number}`, scope: 'per_user', limit: 6000, window_seconds: 60 }
}

async function costsOf(bed: ServiceBed, rounds: number): Promise<Costs> {
  const emptyBytes = await bed.redis.usedBytes()
  await bed.check(freshKeys(USERS, each(USERS)))
  const bytesPerUser = ((await bed.redis.usedBytes()) - emptyBytes) / USERS
  // Nobody comes twice while their lease lasts: as many users as there are checks in a round, each once.
  const seldom = await repeated(rounds, (round) =>
    bed.check(freshKeys(CHECKS, each(CHECKS)).map((user) => `${round}_${user}`)),
  )
  return { seldom, often: await settled(bed, rounds), bytesPerUser }
}

/** Users by Zipf's law, once the code is warm and leases have found out how much is needed. */
async function settled(bed: ServiceBed, rounds: number): Promise<CheckCosts> {
  const choose = zipf(USERS, seeded(1))
  const round = () => bed.check(freshKeys(CHECKS * bed.services, choose))
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
    asked: middle('asked'),
  }
}

/** Redis only works when it is asked. */
function redisUsAt(asked: number, { seldom }: Costs): number {
  return (asked * seldom.redisUs) / seldom.asked
}

function outcomeOf({ seldom, often, bytesPerUser }: Costs, modelUs: number, measuredUs: number): Outcome {
  return {
    results: [
      resultOf('every check asks Redis', [seldom.nodeUs], 'µs of node/check'),
      resultOf('every check asks Redis', [seldom.redisUs], 'µs of Redis/check'),
      resultOf('users by Zipf', [often.nodeUs], 'µs of node/check'),
      resultOf('users by Zipf', [often.redisUs], 'µs of Redis/check'),
      resultOf('users by Zipf', [often.asked], 'requests to Redis/check'),
      resultOf('in Redis', [bytesPerUser], 'B/user'),
    ],
    ratios: { model_over_measured: modelUs / measuredUs, measured_over_model: measuredUs / modelUs },
  }
}

type Check = {
  readonly processes: number
  readonly asked: number
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
    "| measured, for one check | every check asks Redis | users by Zipf's law |",
    '|---|---|---|',
    row('requests to Redis', ({ asked }) => figure(asked)),
    row('CPU of the service, over HTTP', ({ nodeUs }) => `${figure(nodeUs)} µs`),
    row('CPU of Redis', ({ redisUs }) => `${figure(redisUs)} µs`),
    row('between them', ({ networkBytes }) => `${figure(networkBytes)} B`),
    `| memory of Redis, for one user | ${figure(costs.bytesPerUser)} B | ${figure(costs.bytesPerUser)} B |`,
    '',
    `| ${load} | every check asks Redis | users by Zipf's law |`,
    '|---|---|---|',
    planned(`nodes of ${inputs.cores_per_node} cores`, ({ nodes }) => figure(nodes)),
    planned('primaries of a Cluster', ({ shards }) => figure(shards)),
    planned('memory, without replicas', ({ memoryGb }) => `${figure(memoryGb)} GB`),
    planned('network', ({ networkGbitPerSecond }) => `${figure(networkGbitPerSecond)} Gbit/s`),
    planned('nodes, a month', ({ monthlyCost }) => dollars(monthlyCost.nodes)),
    planned('Redis, a month', ({ monthlyCost }) => dollars(monthlyCost.redis + monthlyCost.memory)),
    planned('network, a month', ({ monthlyCost }) => dollars(monthlyCost.network)),
    '',
    `Put to the test: ${check.processes} services on one Redis, users by Zipf's law, ${figure(check.asked)} requests`,
    `to Redis for a check. The model says ${figure(modelUs)} µs of CPU for a check, nodes and Redis together; measured`,
    `were ${figure(measuredUs)} µs, so it is ${figure((modelUs / measuredUs - 1) * 100)} % off.`,
    '',
  ].join('\n')
}

function writeGuide(table: string): void {
  const page = readFileSync(GUIDE, 'utf8')
  const [start, end] = [page.indexOf(START), page.indexOf(END)]
  if (start < 0 || end < start) throw new Error(`docs/guides/capacity.md lacks ${START} or ${END}`)
  writeFileSync(GUIDE, page.slice(0, start + START.length) + table + page.slice(end))
}
