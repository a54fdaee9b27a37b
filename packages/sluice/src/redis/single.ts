// Short call of the script for a lone plain take: flat arguments, specified in the header of lua/apply.lua. Redis
// decides it without parsing JSON and without the tables of a batch. Its reply is that of a plain take in a batch.

import type { Limit } from '../algorithms/limit.ts'
import { ALGORITHMS } from '../algorithms/traits.ts'
import type { Charge } from '../store/store.ts'
import type { KeyNames } from './key.ts'
import type { Form, Request, TakeRequest } from './request.ts'
import { shapeOf } from './wire.ts'

/** Keys and arguments of a script call. */
export type ScriptCall = { readonly keys: readonly string[]; readonly args: readonly string[] }

/** Each limit adds two arguments; a batch is cheaper for more limits than these. */
const LIMITS_MAX = 16
/** Lengths are bytes of a UTF-8 string, so they must be ASCII characters. */
const LENGTH_MAX = 127

/** Whether a lone request has a short call. */
export function isSingleCall(request: Request, form: Form): request is TakeRequest {
  if (form !== 'plain' || request.verb !== 'take' || (request.resets?.length ?? 0) > 0) return false
  return request.charges.length <= LIMITS_MAX && request.charges.every(({ limit }) => argumentsOf(limit).length > 0)
}

/** Key and arguments of a plain take. */
export function singleCall(names: KeyNames, charges: readonly Charge[]): ScriptCall {
  const { limit, owner, detail, min } = charges[0] as Charge // a plain take has a charge
  const args = [String(min)]
  for (const charge of charges) args.push(...argumentsOf(charge.limit))
  return { keys: [names.keyOf(limit, owner, detail)], args }
}

/** Formatted once per limit: limits live as long as their rule set. */
const known = new WeakMap<Limit, readonly string[]>()

/** Arguments of a limit; none if it has no short call. */
function argumentsOf(limit: Limit): readonly string[] {
  const found = known.get(limit)
  if (found !== undefined) return found
  const made = format(limit)
  known.set(limit, made)
  return made
}

function format(limit: Limit): readonly string[] {
  const { burst } = ALGORITHMS[limit.algorithm]
  const shape = shapeOf(limit)
  const isShort = Buffer.byteLength(limit.id) <= LENGTH_MAX && shape.length <= LENGTH_MAX
  if (!isShort || (!burst && limit.algorithm !== 'fixed_window')) return []
  const bucket = `${lengthByte(limit.id)}\0${limit.id}${lengthByte(shape)}${shape}`
  const numbers = burst
    ? [limit.capacity, limit.tickUs, limit.subunitsPerUnit, limit.subunitsPerTick]
    : [limit.capacity, limit.windowTicks * limit.tickUs, 1, 0]
  return [bucket, numbers.join(' ')]
}

function lengthByte(text: string): string {
  return String.fromCharCode(Buffer.byteLength(text))
}
