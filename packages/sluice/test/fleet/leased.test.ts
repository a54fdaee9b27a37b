// Eight processes with leases on one Redis never exceed a limit, with even, uneven and moving load, and when nodes are
// killed; only the leases of killed nodes are lost. Writes a table of docs/guides/leases.md:
// UPDATE_FIGURES=1 npx vitest run leased

import { readFileSync, writeFileSync } from 'node:fs'
import { Redis } from 'ioredis'
import { compileLimit, type LimitNumbers, memoryStore, wallClock } from 'sluice'
import { redisStore } from 'sluice/redis'
import { seededRandom } from 'sluice/testing'
import { expect, onTestFinished, test } from 'vitest'
import { Oracle } from '../simulation/oracle.ts'
import { type Account, LeasedFleet } from './leased-fleet.ts'
import { LEASED, LOAD_NAMES, LOADS, type Load, largest, leasedLimit, NODES, pressed } from './loads.ts'

const GUIDE = new URL('../../../../docs/guides/leases.md', import.meta.url)
const START = '<!-- fleet:start -->'
const END = '<!-- fleet:end -->'

/** The run that writes the table is longer, with longer windows. */
const FULL = process.env.UPDATE_FIGURES === '1'
const WINDOW_US = FULL ? 4_000_000 : 1_500_000
const YEAR_US = 365 * 86_400_000_000
/** Whole windows per half of a run. */
const WINDOWS = FULL ? 3 : 1

const SMALL = LEASED.flatMap((algorithm) => [10, 100].map((units) => leasedLimit(algorithm, units, WINDOW_US)))
/** Longer windows, or one limit at a time: more requests per second would overload a small machine. */
const LARGE = LEASED.map((algorithm) => leasedLimit(algorithm, largest(algorithm), FULL ? WINDOW_US : 4 * WINDOW_US))
const GROUPS = FULL ? [SMALL, ...LARGE.map((limit) => [limit])] : [[...SMALL, ...LARGE]]
/** No refill during the test, so the final count is the sum of all charges. */
const YEARLY = LEASED.flatMap((algorithm) => [100, 1000].map((units) => leasedLimit(algorithm, units, YEAR_US)))

type Span = { readonly fromUs: number; readonly endUs: number }
/** By limit and load: admissions as a share of what a strict store admits for the same requests. */
const shares = new Map<string, Partial<Record<Load, number>>>()

test.each(LOAD_NAMES)('load %s: no interval exceeds the limit', { timeout: 300_000 }, async (load) => {
  for (const limits of GROUPS) {
    const fleet = await startFleet(limits)
    const measured = await underLoad(fleet, limits, load)
    await fleet.end()
    const accounts = fleet.accounts()
    expect(violations(limits, accounts)).toEqual([])
    limits.forEach((limit, index) => {
      const own = accounts[index] ?? []
      // A low bar, because the machine may be busy. share.test.ts tests for 95 %.
      expect(totalsOf(own).admitted).toBeGreaterThan(limit.units / 2)
      shares.set(limit.id, { ...shares.get(limit.id), [load]: shareOf(limit, own, measured) })
    })
  }
})

test('killed nodes: no interval exceeds the limit, and only their leases are lost', async () => {
  const random = seededRandom(7)
  const limits = [...SMALL, ...YEARLY]
  const fleet = await startFleet(limits)
  const rates = [...SMALL.map(pressed(1 / NODES)), ...YEARLY.map(({ units }) => units / 4 / NODES)]
  for (let kills = 0; kills < 8; kills += 1) {
    const victim = random.between(0, NODES - 1)
    const others = Array.from({ length: NODES }, (_, index) => index).filter((index) => index !== victim)
    void fleet.load(victim, rates, 60_000) // killed before it is done
    await Promise.all(others.map((index) => fleet.load(index, rates, 400)))
    await fleet.replace(victim)
  }
  await fleet.end()
  const accounts = fleet.accounts()
  expect(violations(limits, accounts)).toEqual([])
  const counted = await countedIn(fleet)
  const totals = YEARLY.map((_, index) => totalsOf(accounts[SMALL.length + index] ?? []))
  totals.forEach(({ admitted, held, heldByKilled }, index) => {
    const lost = (counted[index] ?? 0) - admitted
    expect(lost).toBeGreaterThanOrEqual(0)
    expect(lost).toBeLessThanOrEqual(heldByKilled)
    expect(held, 'on lease at nodes that were shut down').toBe(0)
  })
  expect(totals.some(({ heldByKilled }) => heldByKilled > 0)).toBe(true)
})

test.runIf(FULL)('docs/guides/leases.md has the figures of this run', () => {
  const page = readFileSync(GUIDE, 'utf8')
  const [start, end] = [page.indexOf(START), page.indexOf(END)]
  expect(start > 0 && end > start).toBe(true)
  writeFileSync(GUIDE, `${page.slice(0, start + START.length)}\n${table()}\n${page.slice(end)}`)
})

async function startFleet(limits: readonly LimitNumbers[]): Promise<LeasedFleet> {
  const fleet = await LeasedFleet.start(limits, NODES)
  onTestFinished(() => fleet.stop())
  return fleet
}

/** Runs whole windows of saturating load, after one window that drains the buckets and does not count. */
async function underLoad(fleet: LeasedFleet, limits: readonly LimitNumbers[], load: Load): Promise<Span> {
  const fromUs = (Math.ceil(wallClock.nowUs() / WINDOW_US) + 1) * WINDOW_US
  let endUs = fromUs
  for (const nodes of LOADS[load]) {
    endUs += WINDOWS * WINDOW_US
    const ms = (endUs - wallClock.nowUs()) / 1000
    await Promise.all(nodes.map((share, index) => fleet.load(index, limits.map(pressed(share)), ms)))
  }
  return { fromUs, endUs }
}

function violations(limits: readonly LimitNumbers[], accounts: readonly Account[][]): string[] {
  const oracle = new Oracle()
  const compiled = limits.map(compileLimit)
  compiled.forEach((limit, index) => {
    const times = accounts[index]?.flatMap(({ admittedUs }) => admittedUs) ?? []
    for (const atUs of times) oracle.admit(limit, 'alice', 1, atUs)
  })
  return oracle.violations(new Map(compiled.map((limit) => [limit.id, limit])))
}

/** Admissions as a share of those of a strict store. */
function shareOf(limit: LimitNumbers, accounts: readonly Account[], { fromUs, endUs }: Span): number {
  const within = (times: readonly number[]) => times.filter((atUs) => atUs >= fromUs && atUs < endUs).length
  const admittedUs = accounts.flatMap((account) => account.admittedUs)
  const requestedUs = accounts.flatMap((account) => account.requestedUs)
  return within(admittedUs) / within(strictlyAdmitted(limit, requestedUs))
}

function strictlyAdmitted(numbers: LimitNumbers, requestedUs: readonly number[]): number[] {
  const limit = { ...compileLimit(numbers), lease: undefined }
  let nowUs = 0
  const store = memoryStore({ clock: { nowUs: () => nowUs } })
  return requestedUs
    .map(Math.floor)
    .toSorted((a, b) => a - b)
    .filter((atUs) => {
      nowUs = atUs
      const charge = { limit, owner: 'alice', detail: '', min: 1, max: 1, kind: 'enforce' } as const
      return store.takeSync?.({ charges: [charge] })?.granted
    })
}

function totalsOf(accounts: readonly Account[]): { admitted: number; held: number; heldByKilled: number } {
  const totals = { admitted: 0, held: 0, heldByKilled: 0 }
  for (const { admittedUs, held, killed } of accounts) {
    totals.admitted += admittedUs.length
    totals[killed ? 'heldByKilled' : 'held'] += held
  }
  return totals
}

/** Units of the yearly limits that Redis has charged. */
async function countedIn({ redis }: LeasedFleet): Promise<number[]> {
  const client = new Redis(redis.url, { lazyConnect: true })
  const store = redisStore(client, { leases: false, deadlineMs: 5000 })
  await store.ready()
  const charges = YEARLY.map((numbers) => {
    const limit = compileLimit(numbers)
    const storeLimit = limit.lease?.storeLimit ?? limit
    return { limit: storeLimit, owner: 'alice', detail: '', min: 1, max: 1, kind: 'enforce' } as const
  })
  const { grants } = await store.peek(charges)
  await store.close()
  client.disconnect()
  return YEARLY.map(({ units }, index) => units - (grants[index]?.remaining ?? 0))
}

function table(): string {
  const head = ['algorithm', 'limit', ...LOAD_NAMES]
  const rows = LEASED.flatMap((name) => [...SMALL, ...LARGE].filter(({ algorithm }) => algorithm === name)).map(
    ({ id, algorithm, units }) => {
      const cells = LOAD_NAMES.map((load) => `${((shares.get(id)?.[load] ?? 0) * 100).toFixed(1)} %`)
      return [`\`${algorithm}\``, units.toLocaleString('en-US'), ...cells]
    },
  )
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n')
}
