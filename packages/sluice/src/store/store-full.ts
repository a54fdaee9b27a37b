// A store that is out of memory still has its buckets: those keep deciding, and only a new one cannot be made. That is
// an error of one request, and no outage.

import { LimiterError } from '../errors.ts'

export class StoreFullError extends LimiterError {
  /** Per charge of the take: whether its bucket does not exist, and so would have to be made. */
  readonly absent: readonly boolean[]

  constructor(message: string, absent: readonly boolean[]) {
    super('STORE_FULL', message)
    this.absent = absent
  }
}
