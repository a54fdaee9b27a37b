// Requests to Redis, and the forms in which they are encoded: frequent ones have a short form.

import { isPacked } from '../algorithms/registry.ts'
import type { BucketName, Charge, Give, GiveResult, IdempotencyKey, Taken } from '../store/store.ts'
import { sharesValue } from './key.ts'

export type TakeRequest = {
  readonly verb: 'take' | 'peek'
  readonly charges: readonly Charge[]
  readonly opId: string | undefined
  /** Given before the take. */
  readonly gives: readonly Give[] | undefined
  /** Reset before the gives. */
  readonly resets: readonly BucketName[] | undefined
  readonly onSent?: (() => void) | undefined
}

export type Request =
  | TakeRequest
  | {
      readonly verb: 'give'
      readonly gives: readonly Give[]
      readonly opId: string | undefined
      readonly idempotencyKey?: IdempotencyKey | undefined
    }
  | { readonly verb: 'reset'; readonly bucket: BucketName }

/** Undefined: done, without a result. */
export type Reply = Taken | GiveResult | undefined

/** Encoding of a request: see formOf. */
export type Form = ShortForm | 'general'
export type ShortForm = 'plain' | 'leased'

/**
 * `plain`: enforced charges of one cost on different packed buckets in one value, without detail. `leased`: the same
 * with larger maxima, hold charges or gives, as sent by leases. `general`: everything else.
 */
export function formOf(request: Request): Form {
  if (request.verb !== 'take' || request.opId !== undefined) return 'general'
  const { charges, gives = [] } = request
  const [first] = charges
  if (first === undefined || !shareOneValue(charges, first)) return 'general'
  if (gives.length === 0 && charges.every(isPlain)) return 'plain'
  return gives.every((give) => charges.some((charge) => belongsTo(give, charge))) ? 'leased' : 'general'
}

/** Whether all buckets are in one value, and named by their limits alone. */
function shareOneValue(charges: readonly Charge[], first: Charge): boolean {
  if (charges.length === 1) return hasShortForm(first, first) && hasPlainName(first)
  for (const charge of charges) {
    if (!hasShortForm(charge, first) || charge.detail !== '' || !sharesValue(charge.limit)) return false
    if (charge.owner !== first.owner || charge.limit.fact !== first.limit.fact) return false
    if (charge.limit.shard?.index !== first.limit.shard?.index) return false
  }
  return !repeats(charges)
}

function hasShortForm({ limit, min, kind }: Charge, first: Charge): boolean {
  return (kind === 'enforce' || kind === 'hold') && min === first.min && isPacked(limit)
}

function isPlain({ limit, min, max, kind }: Charge): boolean {
  return kind === 'enforce' && min === max && limit.holdTicks === 0 && limit.lease === undefined
}

function belongsTo(give: Give, { limit, owner, detail }: Charge): boolean {
  return give.limit === limit && give.owner === owner && give.detail === detail && give.units >= 0
}

export function hasPlainName({ limit, detail }: BucketName): boolean {
  return detail === '' || !sharesValue(limit)
}

/** Whether two charges may name one bucket: the script looks for duplicates only in TAKE_REPEATING. */
export function repeats(charges: readonly Charge[]): boolean {
  return charges.some(({ limit }, index) => charges.findIndex((other) => other.limit.id === limit.id) < index)
}
