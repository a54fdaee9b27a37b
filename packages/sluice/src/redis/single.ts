// Short call of the script for a lone take, plain or of a lease: flat arguments, specified in the header of
// lua/apply.lua. Redis decides it without parsing JSON and without the tables of a batch. Its reply is that of the same
// take in a batch.

import type { Limit } from '../algorithms/limit.ts'
import { ALGORITHMS } from '../algorithms/traits.ts'
import { utf8 } from '../sha-256.ts'
import type { Charge, Give } from '../store/store.ts'
import type { KeyNames } from './key.ts'
import type { Form, Request, TakeRequest } from './request.ts'
import { KINDS, settledOf, shapeOf, storeLimitOf } from './wire.ts'

/** Keys and arguments of a script call. */
export type ScriptCall = { readonly keys: readonly string[]; readonly args: readonly string[] }

/** Each limit adds two arguments; a batch is cheaper for more limits than these. */
const LIMITS_MAX = 16
/** Lengths are bytes of a UTF-8 string, so they must be ASCII characters. */
const LENGTH_MAX = 127
/** First argument of a lease take. */
const LEASE = 'lease'
const NO_GIVES: readonly Give[] = []

/** Whether a lone request has a short call. */
export function isSingleCall(request: Request, form: Form): request is TakeRequest {
  if (form === 'general' || request.verb !== 'take' || (request.resets?.length ?? 0) > 0) return false
  if (request.charges.length > LIMITS_MAX) return false
  return request.charges.every(({ limit }) => hasArguments(limit)) && (request.gives ?? NO_GIVES).every(isWhole)
}

/** Key and arguments of a take whose form is not `general`. */
export function singleCall(names: KeyNames, form: Form, { charges, gives = NO_GIVES }: TakeRequest): ScriptCall {
  const { limit, owner, detail, min } = charges[0] as Charge // a short form has a charge
  const args = [form === 'plain' ? String(min) : LEASE]
  for (const charge of charges) {
    const { bucket, numbers } = argumentsOf(storeLimitOf(charge.limit)) as Arguments // checked by isSingleCall
    args.push(bucket, form === 'plain' ? numbers : `${numbers} ${leaseNumbers(charge, gives)}`)
  }
  return { keys: [names.keyOf(limit, owner, detail)], args }
}

function leaseNumbers({ limit, min, max, kind }: Charge, gives: readonly Give[]): string {
  let text = `${storeLimitOf(limit).holdTicks} ${min} ${max} ${KINDS[kind]}`
  for (const give of gives) {
    if (give.limit === limit) text += ` ${give.units} ${give.bookedUs} ${settledOf(give)}`
  }
  return text
}

/** Whether the script can parse the numbers of a give: others are left to JSON. */
function isWhole({ units, bookedUs, settled = 0 }: Give): boolean {
  return units >= 0 && settled >= 0 && bookedUs >= 0 && Number.isSafeInteger(bookedUs)
}

type Arguments = { readonly bucket: string; readonly numbers: string }

/** Formatted once per limit: limits live as long as their rule set. */
const known = new WeakMap<Limit, Arguments | 'none'>()

function hasArguments(limit: Limit): boolean {
  return argumentsOf(storeLimitOf(limit)) !== undefined
}

/** Arguments of a limit; undefined if it has no short call. */
function argumentsOf(limit: Limit): Arguments | undefined {
  const found = known.get(limit)
  if (found !== undefined) return found === 'none' ? undefined : found
  const made = format(limit)
  known.set(limit, made ?? 'none')
  return made
}

function format(limit: Limit): Arguments | undefined {
  const { burst, windows } = ALGORITHMS[limit.algorithm]
  const shape = shapeOf(limit)
  const isShort = utf8(limit.id).length <= LENGTH_MAX && shape.length <= LENGTH_MAX
  if (!isShort || (!burst && windows !== 1)) return undefined
  const bucket = `${lengthByte(limit.id)}\0${limit.id}${lengthByte(shape)}${shape}`
  const numbers = burst
    ? [limit.capacity, limit.tickUs, limit.subunitsPerUnit, limit.subunitsPerTick]
    : [limit.capacity, limit.windowTicks * limit.tickUs, 1, 0]
  return { bucket, numbers: numbers.join(' ') }
}

function lengthByte(text: string): string {
  return String.fromCharCode(utf8(text).length)
}
