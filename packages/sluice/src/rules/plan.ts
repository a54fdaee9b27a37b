// What one request has to pay. Made by constructors, and lists of several by copying an empty one, because V8 watches
// literals: if most of the first few hundred outlive a collection, as they may while a process starts, all later ones
// are made old, and whatever they refer to dies late, for as long as the process lives (docs/decisions/0018).

import type { Limit } from '../algorithms/limit.ts'
import type { Charge, ChargeKind, Op } from '../store/store.ts'
import type { CompiledLimit } from './compile.ts'

/** What is asked of the store: `limits[i]` is what `charges[i]` was made of. */
export class Plan {
  readonly charges: readonly Charge[]
  readonly limits: readonly CompiledLimit[]
  readonly op: Op | undefined
  /** Version of the rule set that made it: while the store is asked, another one may come into force. */
  readonly version: number

  constructor(charges: readonly Charge[], limits: readonly CompiledLimit[], op: Op | undefined, version: number) {
    this.charges = charges
    this.limits = limits
    this.op = op
    this.version = version
  }
}

/** The cost of a request at one limit, to be paid as a whole. */
export class RuleCharge implements Charge {
  readonly limit: Limit
  readonly owner: string
  readonly detail: string
  readonly min: number
  readonly max: number
  readonly kind: ChargeKind

  constructor(limit: Limit, owner: string, detail: string, units: number, kind: ChargeKind) {
    this.limit = limit
    this.owner = owner
    this.detail = detail
    this.min = units
    this.max = units
    this.kind = kind
  }
}

/** It held an object once: V8 then knows at once what its copies are for. */
const EMPTY: unknown[] = [{}]
EMPTY.pop()

export function emptyList<T>(): T[] {
  return EMPTY.slice() as T[]
}
