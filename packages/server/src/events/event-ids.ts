// UUIDs, version 7: 48 bits of time, then random bits, so that ids sort by time and are unique across nodes.

import { randomBytes } from 'node:crypto'

const BUFFERED = 4096
const RANDOM_BYTES = 10

export class EventIds {
  #random = Buffer.alloc(0)
  #used = 0

  next(ms: number): string {
    if (this.#used + RANDOM_BYTES > this.#random.length) {
      this.#random = randomBytes(BUFFERED)
      this.#used = 0
    }
    const time = Math.floor(ms).toString(16).padStart(12, '0')
    const hex = this.#random.toString('hex', this.#used, this.#used + RANDOM_BYTES)
    this.#used += RANDOM_BYTES
    const variant = '89ab'.charAt(Number.parseInt(hex.charAt(3), 16) & 3)
    return `${time.slice(0, 8)}-${time.slice(8)}-7${hex.slice(0, 3)}-${variant}${hex.slice(4, 7)}-${hex.slice(7, 19)}`
  }
}
