// Logs the start and the end of an outage of the OTLP receiver, not each failed export.

import type { Log } from '../log.ts'

export type Signal = 'traces' | 'metrics'

export class Outage {
  readonly #log: Log
  readonly #signal: Signal
  readonly #host: string
  #isFailing = false

  constructor(log: Log, signal: Signal, host: string) {
    this.#log = log
    this.#signal = signal
    this.#host = host
  }

  failed(error: unknown): void {
    if (this.#isFailing) return
    this.#isFailing = true
    this.#log.event('otlp_export_failed', { signal: this.#signal, host: this.#host, reason: reasonOf(error) })
  }

  succeeded(): void {
    if (!this.#isFailing) return
    this.#isFailing = false
    this.#log.event('otlp_export_recovered', { signal: this.#signal, host: this.#host })
  }
}

/** Status or error code if there is one: the message of a failed response is chosen by the receiver. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown error'
  const { code, cause, name, message } = error as NodeJS.ErrnoException & { readonly cause?: unknown }
  if (name === 'TimeoutError' || /timed out/i.test(message)) return 'timed out' // its code is a number, too
  if (typeof code === 'number') return `status ${code}`
  if (cause instanceof Error) return reasonOf(cause)
  return typeof code === 'string' ? code : message
}
