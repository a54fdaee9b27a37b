// What is asked of Redis, and in which form it is told: most requests have a short one.

import { isPacked } from '../algorithms/registry.ts'
import type { BucketName, Charge, Give, Given, Once, Taken } from '../store/store.ts'
import { sharesValue } from './key.ts'

export type TakeRequest = {
  readonly verb: 'take' | 'peek'
  readonly charges: readonly Charge[]
  readonly opId: string | undefined
  /** Given first. */
  readonly gives: readonly Give[] | undefined
  /** Reset before that. */
  readonly resets: readonly BucketName[] | undefined
}

export type Request =
  | TakeRequest
  | {
      readonly verb: 'give'
      readonly gives: readonly Give[]
      readonly opId: string | undefined
      readonly once?: Once | undefined
    }
  | { readonly verb: 'reset'; readonly bucket: BucketName }

/** Undefined: it is done, and there is no more to say. */
export type Answer = Taken | Given | undefined

/** How a request is told: see formOf. */
export type Form = ShortForm | 'any'
export type ShortForm = 'plain' | 'leased'

/**
 * What most requests are has a short form: charges of one cost, all enforced, of different buckets in one value, which
 * their limits name. Those that know leases, and hold more or tell what became of it, have another one.
 */
export function formOf(request: Request): Form {
  if (request.verb !== 'take' || request.opId !== undefined) return 'any'
  const { charges, gives = [] } = request
  const [first] = charges
  if (first === undefined || !areTogether(charges, first)) return 'any'
  if (gives.length === 0 && charges.every(isPlain)) return 'plain'
  return gives.every((give) => charges.some((charge) => comesBackTo(give, charge))) ? 'leased' : 'any'
}

/** Whether the limits of the charges name their buckets, all in one value. */
function areTogether(charges: readonly Charge[], first: Charge): boolean {
  if (charges.length === 1) return isShort(first, first) && hasPlainName(first)
  for (const charge of charges) {
    if (!isShort(charge, first) || charge.detail !== '' || !sharesValue(charge.limit)) return false
    if (charge.owner !== first.owner || charge.limit.fact !== first.limit.fact) return false
    if (charge.limit.shard?.index !== first.limit.shard?.index) return false
  }
  return !repeats(charges)
}

function isShort({ limit, min, kind }: Charge, first: Charge): boolean {
  return (kind === 'enforce' || kind === 'hold') && min === first.min && isPacked(limit)
}

function isPlain({ limit, min, max, kind }: Charge): boolean {
  return kind === 'enforce' && min === max && limit.holdTicks === 0 && limit.lease === undefined
}

function comesBackTo(give: Give, { limit, owner, detail }: Charge): boolean {
  return give.limit === limit && give.owner === owner && give.detail === detail && give.units >= 0
}

export function hasPlainName({ limit, detail }: BucketName): boolean {
  return detail === '' || !sharesValue(limit)
}

/** Whether two charges may be of one bucket: the script looks for that only when told to. */
export function repeats(charges: readonly Charge[]): boolean {
  return charges.some(({ limit }, index) => charges.findIndex((other) => other.limit.id === limit.id) < index)
}
