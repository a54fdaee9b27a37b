// Bytes that a connection makes the server hold. All connections share one budget: while it is used up, each of them
// may hold little, so that many connections together cannot exhaust the memory of the process.

/** Budget of all connections of a server. */
const SHARED_BYTES_MAX = 128 * 1024 * 1024
/** Cap of a connection while the shared budget is used up. */
const SCARCE_BYTES_MAX = 64 * 1024

export type SharedBytes = { bytes: number }

export class BufferedBytes {
  readonly #bytesMax: number
  readonly #shared: SharedBytes
  #bytes = 0

  constructor(bytesMax: number, shared: SharedBytes) {
    this.#bytesMax = bytesMax
    this.#shared = shared
  }

  get isFull(): boolean {
    return this.#bytes > (this.#shared.bytes > SHARED_BYTES_MAX ? SCARCE_BYTES_MAX : this.#bytesMax)
  }

  /** A negative number removes bytes. */
  add(bytes: number): void {
    this.#bytes += bytes
    this.#shared.bytes += bytes
  }
}
