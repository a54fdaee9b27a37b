// Random traces from a seed: takes over several rules, costs, refunds, permits, edits and clock jumps.

import { ALGORITHM_NAMES, type Charge, compileLimit, type Give, type Limit, type Store, type Taken } from 'sluice'
import type { FakeClock, Random } from 'sluice/testing'
import { andThen, type MaybePromise } from '../../src/maybe-promise.ts'

export type Step =
  | Take
  | ({ readonly kind: 'give'; readonly sameOp: boolean } & GiveBack)
  | { readonly kind: 'reset'; readonly charge: Charge }
  | { readonly kind: 'clock'; readonly byUs: number }

type Take = {
  readonly kind: 'take' | 'peek'
  readonly charges: readonly Charge[]
  readonly opId: string
  /** Sent with the take. */
  readonly give: GiveBack | undefined
}

/** Give operations for all charges of an earlier take. */
type GiveBack = { readonly of: number; readonly units: number; readonly settled: number }

const OWNERS = ['alice', 'bob', '{curly}', '\u00e9\u4e2d\ud83d\ude00']
const DETAILS = ['', '', 'POST /messages']
const UNITS = [1, 2, 3, 7, 10, 100, 300, 1000]
const WINDOWS_US = [250_000, 1_000_000, 7_000_000, 60_000_000]
const JUMPS_US = [1, 999, 1000, 33_333, 250_000, 1_000_000, 5_000_000, 61_000_000, -1, -1000, -5_000_000]
const HOLDS_US = [0, 200_000, 2_000_000, 2_000_000]
const RULES = 6

/** `leased`: token buckets may have units on lease, which the memory store does not know. */
export function randomTrace(random: Random, steps: number, leased = false): Step[] {
  const limits = Array.from({ length: RULES }, (_, index) => randomLimit(random, index, 0, leased))
  const others = limits.map((limit, index) => otherVersion(random, limit, index))
  const trace: Step[] = []
  for (let index = 0; index < steps; index += 1) {
    if (random.next() < 0.08) edit(random, limits, leased)
    const edited = random.next() < 0.2 ? random.between(0, RULES - 1) : -1
    if (edited >= 0) others[edited] = otherVersion(random, limits[edited], edited)
    const step = randomStep(random, limits, trace)
    const pairs = random.next() < 0.3 && 'charges' in step ? randomPairs(random, limits, others) : []
    trace.push(pairs.length === 0 ? step : { ...(step as Take), charges: shuffled(random, step, pairs) })
  }
  return trace
}

/** Counterfactual limits of one version of a rule, by role. */
type OtherVersion = { readonly old: Limit; readonly new: Limit }

/** The version of a rule under rollout that is not in the rule set: other numbers, without leases. */
function otherVersion(random: Random, limit: Limit | undefined, index: number): OtherVersion {
  const packed = index < 4 && random.next() < 0.3
  const other = randomLimit(random, packed ? random.between(0, 3) : index, limit?.generation ?? 0, false)
  const seed = { ...other, id: `rule-${index}`, detailBounded: index % 2 === 0 }
  return { old: { ...seed, id: `old^000000^${seed.id}`, seed }, new: { ...seed, id: `new^000000^${seed.id}`, seed } }
}

/** Charges of one or two pairs: an enforced version, sometimes none, and one or two counterfactual limits. */
function randomPairs(random: Random, limits: readonly Limit[], others: readonly OtherVersion[]): Charge[] {
  return Array.from({ length: random.pick([1, 1, 2]) }, (_, index) => index + 1).flatMap((pair): Charge[] => {
    const indexes = Array.from({ length: random.pick([1, 1, 2]) }, () => random.between(0, RULES - 2)) // no permits
    const { owner, detail, min } = randomCharge(random, limits)
    const role = random.pick(['old', 'new'] as const)
    const kind = random.pick(['enforce', 'enforce', 'shadow'] as const)
    return indexes.flatMap((index): Charge[] => {
      const [limit, other] = [limits[index] as Limit, others[index] as OtherVersion] // the index is in range
      const common = { owner, detail, min, max: min, pair }
      const counterfactual: Charge = { ...common, limit: other[role], kind: 'counterfactual' }
      const enforced = { ...common, limit, kind }
      return random.next() < 0.1 ? [counterfactual] : [enforced, counterfactual]
    })
  })
}

/** Pairs in random places among the charges. A take names no bucket under two versions of a limit. */
function shuffled(random: Random, step: Step, pairs: readonly Charge[]): Charge[] {
  const isOther = (a: Limit, b: Limit) => a.id === b.id && a !== b
  const given = 'charges' in step ? step.charges : []
  const charges = given.filter(({ limit }) => !pairs.some((paired) => isOther(paired.limit, limit)))
  for (const charge of pairs) charges.splice(random.between(0, charges.length), 0, charge)
  return charges
}

/** Caps the units at what the algorithm supports. */
function randomLimit(random: Random, index: number, generation: number, leased: boolean): Limit {
  const algorithm = ALGORITHM_NAMES[index % ALGORITHM_NAMES.length] ?? 'token_bucket'
  const burst = random.pick([undefined, 1, 5, 500])
  const bucket = algorithm === 'token_bucket' || algorithm === 'leaky_bucket'
  const limit = compileLimit({
    id: `rule-${index}`,
    fact: 'user',
    algorithm,
    generation,
    units: random.pick(UNITS),
    windowUs: random.pick(WINDOWS_US),
    detailBounded: index % 2 === 0,
    ...(algorithm === 'sliding_window_log' && random.next() < 0.5 ? { approximate: {} } : {}),
    ...(bucket && burst !== undefined ? { burst } : {}),
  })
  const holdTicks = leased && algorithm === 'token_bucket' ? Math.ceil(random.pick(HOLDS_US) / limit.tickUs) : 0
  return { ...limit, holdTicks }
}

/** New numbers for a rule, sometimes another packed algorithm, sometimes an older generation: a node that is behind. */
function edit(random: Random, limits: Limit[], leased: boolean): void {
  const index = random.between(0, RULES - 1)
  const old = limits[index] as Limit
  const generation = Math.max(0, old.generation + random.pick([0, 1, 1, 1, -1]))
  const packed = index < 4 && random.next() < 0.3
  const next = randomLimit(random, packed ? random.between(0, 3) : index, generation, leased)
  limits[index] = { ...next, id: old.id, detailBounded: old.detailBounded }
}

function randomStep(random: Random, limits: readonly Limit[], trace: readonly Step[]): Step {
  const dice = random.next()
  const earlier = trace.flatMap((step) => (step.kind === 'take' ? [step] : []))
  const takes = earlier.length
  if (dice < 0.25) return { kind: 'clock', byUs: random.pick(JUMPS_US) }
  if (dice < 0.35 && takes > 0) {
    return { kind: 'give', sameOp: random.next() < 0.8, ...randomGive(random, takes) }
  }
  if (dice < 0.37) return { kind: 'reset', charge: randomCharge(random, limits) }
  if (dice > 0.8 && takes > 0) return ofAnother(random, earlier[takes - 1] as Take)
  const mixed = Array.from({ length: random.pick([1, 1, 2, 3, 5]) }, () => randomCharge(random, limits))
  const give = takes > 0 && random.next() < 0.3 ? randomGive(random, takes) : undefined
  const given =
    give === undefined ? [] : (earlier[give.of]?.charges ?? []).filter(({ limit }) => limit.seed === undefined)
  const again = given.length > 0 && random.next() < 0.7 ? given : undefined
  const charges = again !== undefined || random.next() < 0.4 ? oneOwner(again ?? mixed) : mixed
  return { kind: dice < 0.45 ? 'peek' : 'take', charges, opId: `op-${random.between(0, 7)}`, give }
}

/** Equal takes on different buckets in a row, which the wire format merges. */
function ofAnother(random: Random, { charges, opId }: Take): Take {
  const owner = random.pick(OWNERS)
  return { kind: 'take', charges: charges.map((charge) => ({ ...charge, owner })), opId, give: undefined }
}

function randomGive(random: Random, takes: number): GiveBack {
  const of = random.next() < 0.5 ? takes - 1 : random.between(0, takes - 1)
  return { of, units: random.pick([1, 2, 100, -1, 0]), settled: random.pick([0, 0, 1, 3]) }
}

/** One owner, one cost, each limit once: the lease requests that have a short form. */
function oneOwner(charges: readonly Charge[]): Charge[] {
  const { owner, min } = charges[0] as Charge // there is always one
  const different = charges.filter(({ limit }, index) => charges.findIndex((other) => other.limit === limit) === index)
  return different.map(({ limit, max, kind }) => {
    return { limit, owner, detail: '', min, max: Math.max(min, max), kind: kind === 'hold' ? kind : 'enforce' }
  })
}

function randomCharge(random: Random, limits: readonly Limit[]): Charge {
  const min = random.pick([1, 1, 1, 2, 5])
  const limit = random.pick(limits)
  const holds = limit.holdTicks > 0 && random.next() < 0.3
  return {
    limit,
    owner: random.pick(OWNERS),
    detail: random.pick(DETAILS),
    min,
    max: min + random.pick([0, 0, 0, 3]),
    kind: holds ? 'hold' : random.pick(['enforce', 'enforce', 'enforce', 'shadow', 'force']),
  }
}

/**
 * Results of a store for each take and peek. `together`: steps between two clock moves do not wait for each other, so
 * they share a batch.
 */
export async function replay(
  store: Store,
  clock: FakeClock,
  trace: readonly Step[],
  together = false,
): Promise<unknown[]> {
  const booked: Booked[] = []
  const answers: ReturnType<typeof ask>[] = []
  for (const step of trace) {
    if (step.kind === 'clock') {
      await Promise.all(answers)
      clock.advanceUs(step.byUs)
      continue
    }
    const answer = ask(store, step, booked, clock.nowUs())
    answers.push(answer)
    if (!together) await answer
  }
  return (await Promise.all(answers)).flatMap((taken) => (taken === undefined ? [] : [plain(taken)]))
}

function ask(store: Store, step: Asking, booked: Booked[], nowUs: number): MaybePromise<Taken | undefined> {
  if (step.kind === 'reset') return andThen(store.reset(step.charge), () => undefined)
  if (step.kind === 'peek') return store.peek(step.charges)
  if (step.kind === 'give') {
    const gives = givesOf(step, booked)
    const permits = gives.some(({ limit }) => limit.algorithm === 'concurrency')
    const opId = step.sameOp ? booked[step.of]?.opId : 'op-other'
    return andThen(store.give(gives, permits ? opId : undefined), () => undefined)
  }
  // Without permits no op is needed, and a single charge then uses the short form of the script.
  const permits = step.charges.some(({ limit }) => limit.algorithm === 'concurrency')
  const op = permits ? { id: step.opId } : undefined
  // Permits are released by op id, in a separate give.
  const gives = step.give && givesOf(step.give, booked).filter(({ limit }) => limit.algorithm !== 'concurrency')
  booked.push({ charges: step.charges, nowUs, opId: step.opId })
  return store.take({ charges: step.charges, op, gives })
}

type Asking = Exclude<Step, { readonly kind: 'clock' }>
type Booked = { readonly charges: readonly Charge[]; readonly nowUs: number; readonly opId: string }

function givesOf({ of, units, settled }: GiveBack, booked: readonly Booked[]): Give[] {
  const { charges, nowUs } = booked[of] as Booked // a give comes after the take it is of
  return charges.map((charge) => ({ ...charge, units, bookedUs: nowUs, settled }))
}

/** Plain copy of a result, for comparison. */
function plain({ granted, nowUs, grants, source, replayed }: Taken): Taken {
  const each = grants.map(({ units, short, remaining, resetAfterUs, retryAfterUs, delayUs }) => {
    return { units, short, remaining, resetAfterUs, retryAfterUs, delayUs }
  })
  return { granted, nowUs, grants: each, source, replayed }
}
