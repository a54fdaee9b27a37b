// Limits shared by two regions on real Redis servers: shares of one region and of both, without the global Redis, and
// with skewed clocks. Writes the table of docs/guides/regions.md: UPDATE_FIGURES=1 npx vitest run test/regions

import { readFileSync, writeFileSync } from 'node:fs'
import { type Limit, ALGORITHMS as TRAITS } from 'sluice'
import { expect, onTestFinished, test } from 'vitest'
import { ALGORITHMS, type BedOptions, type Loaded, RegionBed, sharedLimits } from './region-bed.ts'

const GUIDE = new URL('../../../../docs/guides/regions.md', import.meta.url)
const START = '<!-- regions:start -->'
const END = '<!-- regions:end -->'
const FULL = process.env.UPDATE_FIGURES === '1'

const WEIGHTS = { eu: 0.6, us: 0.4 }
const UNITS = 200
const WINDOW_US = 2_000_000
const LIMITS = sharedLimits(UNITS, WINDOW_US)
/** A leased log has a window longer by 4 %. */
const LEAST_SHARE = { token_bucket: 0.95, fixed_window: 0.95, sliding_window: 0.95, sliding_window_log: 0.92 }

/** By scenario and limit: the admitted share of the limit, and the highest share in any interval. */
const figures = new Map<string, readonly { readonly used: number; readonly worst: number }[]>()

async function bedOf(options: BedOptions): Promise<RegionBed> {
  const bed = await RegionBed.start(options)
  onTestFinished(() => bed.stop())
  return bed
}

function worst(bed: RegionBed): number[] {
  return LIMITS.map((limit) => bed.oracle.worst(limit, 'alice'))
}

/** Expects that no interval exceeded the limit. */
function expectTheLimit(bed: RegionBed): void {
  for (const [index, algorithm] of ALGORITHMS.entries()) expect(worst(bed)[index], algorithm).toBeLessThanOrEqual(1)
}

function note(scenario: string, used: readonly number[], bed: RegionBed): void {
  const most = worst(bed)
  figures.set(
    scenario,
    used.map((share, index) => ({ used: share, worst: most[index] ?? 0 })),
  )
}

/** Admissions as shares of what whole windows allow. */
function sharesOf({ admitted }: Loaded, seconds: number): number[] {
  return admitted.map((count) => count / ((UNITS * seconds * 1e6) / WINDOW_US))
}

test.each([0.05, 0.5, 1])('home share h = %d: a region alone can use 1 − h (1 − w) of a limit', async (homeShare) => {
  for (const [name, weight] of [
    ['eu', 0.6],
    ['us', 0.4],
  ] as const) {
    const bed = await bedOf({ shares: { weights: WEIGHTS, homeShare } })
    // Virtual time stands still.
    const admitted = await Promise.all(LIMITS.map((limit) => checkUntilSpent(bed, name, limit)))
    const least = UNITS * (1 - homeShare * (1 - weight))
    for (const count of admitted) expect(count).toBeGreaterThanOrEqual(Math.floor(least))
    expectTheLimit(bed)
    note(
      `${name} alone, h = ${homeShare}`,
      admitted.map((count) => count / UNITS),
      bed,
    )
  }
})

/** Checks until 10 consecutive refusals: units may be in flight after the first. */
async function checkUntilSpent(bed: RegionBed, name: 'eu' | 'us', limit: Limit): Promise<number> {
  let admitted = 0
  for (let refused = 0; refused < 10; ) {
    if ((await bed.check(name, limit)).granted) {
      admitted += 1
      refused = 0
    } else refused += 1
  }
  return admitted
}

test.each([
  ['near', true],
  ['far', false],
])(
  'both regions saturated, pool %s: no interval exceeds the limit, and nearly all of it is used',
  async (name, near) => {
    const bed = await bedOf({ shares: { weights: WEIGHTS }, near })
    await bed.load(LIMITS, 2, { eu: 1, us: 1 })
    const { admitted, strictly } = await bed.load(LIMITS, 12, { eu: 1, us: 1 })
    const used = admitted.map((count, index) => count / (strictly[index] ?? 0))
    expectTheLimit(bed)
    ALGORITHMS.forEach((algorithm, index) => {
      expect(used[index], algorithm).toBeGreaterThanOrEqual(LEAST_SHARE[algorithm])
    })
    note(`both saturated, the pool is ${name}`, used, bed)
  },
)

test('a region that is isolated for a minute has its home, and no interval exceeds the limit', async () => {
  const bed = await bedOf({ shares: { weights: WEIGHTS, homeShare: 0.5 } })
  await bed.load(LIMITS, 4, { eu: 1, us: 1 })
  bed.links.us.shut()
  await bed.load(LIMITS, 2, { eu: 1, us: 1 })
  const alone = sharesOf(await bed.load(LIMITS, 58, { us: 1 }), 58)
  expect(bed.isIsolated('us')).toBe(true)
  for (const share of alone) expect(share).toBeGreaterThan(0.5 * 0.4 * 0.9)
  // Units left at home or on lease when counting began come on top.
  for (const share of alone) expect(share).toBeLessThanOrEqual(0.5 * 0.4 + 0.002)
  expectTheLimit(bed)
  note('us isolated for a minute (h = 0.5), us alone', alone, bed)
  bed.links.us.open()
})

test('without the global Redis, regions have their homes, and no interval exceeds the limit', async () => {
  const bed = await bedOf({ shares: { weights: WEIGHTS, homeShare: 0.5 } })
  await bed.load(LIMITS, 4, { eu: 1, us: 1 })
  await bed.global.stop()
  await bed.load(LIMITS, 2, { eu: 1, us: 1 })
  const used = sharesOf(await bed.load(LIMITS, 10, { eu: 1, us: 1 }), 10)
  for (const share of used) expect(share).toBeGreaterThan(0.5 * 0.9)
  // Units left at home or on lease when counting began come on top.
  for (const share of used) expect(share).toBeLessThanOrEqual(0.5 + 0.02)
  expectTheLimit(bed)
  note('global Redis killed (h = 0.5)', used, bed)
})

test('with clocks 2 s apart, buckets and logs keep the limit, and windows exceed it by the homes at most', async () => {
  const homeShare = 0.5
  const bed = await bedOf({ shares: { weights: WEIGHTS, homeShare }, skewMs: { eu: 2000, us: -700 } })
  await bed.load(LIMITS, 2, { eu: 1, us: 1 })
  const used = sharesOf(await bed.load(LIMITS, 12, { eu: 1, us: 1 }), 12)
  const most = worst(bed)
  ALGORITHMS.forEach((algorithm, index) => {
    const bound = TRAITS[algorithm].windows > 0 ? 1 + homeShare : 1
    expect(most[index], algorithm).toBeLessThanOrEqual(bound)
  })
  note('clocks 2 s and −0.7 s off (h = 0.5)', used, bed)
})

test.runIf(FULL)('docs/guides/regions.md has the figures of this run', () => {
  const page = readFileSync(GUIDE, 'utf8')
  const [start, end] = [page.indexOf(START), page.indexOf(END)]
  expect(start > 0 && end > start).toBe(true)
  writeFileSync(GUIDE, `${page.slice(0, start + START.length)}\n${table()}\n${page.slice(end)}`)
})

function table(): string {
  const head = ['scenario', ...ALGORITHMS.map((algorithm) => `\`${algorithm}\``)]
  const percent = (share: number) => `${(share * 100).toFixed(1)} %`
  const rows = [...figures].map(([scenario, cells]) => {
    return [scenario, ...cells.map(({ used, worst: most }) => `${percent(used)}, at most ${percent(most)}`)]
  })
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n')
}
