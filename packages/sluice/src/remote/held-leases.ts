// Leases that the service issued to this node, by bucket and booking time. The service accepts units back only with the
// lease that names them. A lease without entry here, because there were too many, is not returned: errs low.

import type { BucketName } from '../store/store.ts'
import type { WireReturn } from './requests.ts'

export type HeldLease = {
  lease: string
  /** Units that can still be returned, and those of them on lease. */
  units: number
  onLease: number
  /** A return is on its way; its reply brings the lease that replaces this one. */
  returning: Promise<unknown> | undefined
}

/** A return, and the lease that it changes. */
export type PlannedReturn = { readonly held: HeldLease; readonly sent: WireReturn }

export class HeldLeases {
  readonly #byName = new Map<string, HeldLease[]>()
  readonly #max: number

  constructor(max: number) {
    this.#max = max
  }

  get size(): number {
    return this.#byName.size
  }

  add(bucket: BucketName, bookedUs: number, lease: string, units: number, onLease: number): void {
    const name = nameOf(bucket, bookedUs)
    const held: HeldLease = { lease, units, onLease, returning: undefined }
    // Redis books all takes of a batch at the same time.
    const others = this.#byName.get(name)
    if (others !== undefined) others.push(held)
    else this.#byName.set(name, [held])
    if (this.#byName.size <= this.#max) return
    const [oldest] = this.#byName.keys()
    if (oldest !== undefined) this.#byName.delete(oldest)
  }

  /** Prefers a lease that covers the whole return, else any with units left; undefined if there is none. */
  find(bucket: BucketName, bookedUs: number, units: number, settled: number): HeldLease | undefined {
    const name = nameOf(bucket, bookedUs)
    const list = this.#byName.get(name)
    if (list === undefined) return undefined
    const left = list.filter((held) => held.lease !== '')
    if (left.length === 0) this.#byName.delete(name)
    else if (left.length < list.length) this.#byName.set(name, left)
    return left.find((held) => held.units >= units && held.onLease >= settled) ?? left.find((held) => held.units > 0)
  }
}

function nameOf({ limit, owner, detail }: BucketName, bookedUs: number): string {
  return `${bookedUs} ${limit.id} ${owner.length} ${owner} ${detail}`
}
