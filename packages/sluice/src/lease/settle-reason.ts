/**
 * Reason to settle the batches of a lease. query: a request waits for units of the bucket. refill: units are requested
 * before they are needed. sweep: the periodic pass over all leases. end: the lease ends, so unexpired units go back.
 */
export type SettleReason = 'query' | 'refill' | 'sweep' | 'end'
