// Error of a Redis that is out of memory; the memory store uses overflow buckets instead. Existing buckets still
// decide, only new ones cannot be created. It affects single requests and is not an outage.

import { LimiterError } from '../errors.ts'

export class StoreFullError extends LimiterError {
  /** Per charge of the take: whether its bucket does not exist yet. */
  readonly absent: readonly boolean[]

  constructor(message: string, absent: readonly boolean[]) {
    super('STORE_FULL', message)
    this.absent = absent
  }
}
