// One recorded request: a check, or a refund or reset that changed buckets between checks.

import type { Subject } from '../subject.ts'

/** A request that was checked, or should be. */
export type RecordedCheck = {
  readonly kind: 'check'
  /** Microseconds since the epoch: store time, if it is known. */
  readonly atUs: number
  readonly subject: Subject
  /** Names the request for a later refund, and its permits. */
  readonly requestId?: string | undefined
  /** The recorded decision. Undefined if it is unknown. */
  readonly allowed?: boolean | undefined
  /** Rule of the recorded decision. */
  readonly ruleId?: string | null | undefined
  /** An override, bypass token or signal changed the recorded decision. It is not replayed. */
  readonly exception?: true | undefined
  /** Position of the client in [0, 1): it is in a sample of this rate and all higher ones. */
  readonly position?: number | undefined
  /** Share of the clients that was recorded completely at that time; 0: unknown. Default: 1. */
  readonly sampleRate?: number | undefined
  /** Orders requests of the same microsecond: the process that recorded it, and its number there. */
  readonly node?: string | undefined
  readonly sequence?: number | undefined
}

/** Returns what a check took: all of it, or `units` per limit. 0: only releases its permits. */
export type RecordedRefund = {
  readonly kind: 'refund'
  readonly atUs: number
  readonly requestId: string
  readonly units?: number | undefined
  readonly position?: number | undefined
  readonly sampleRate?: number | undefined
  readonly node?: string | undefined
  readonly sequence?: number | undefined
}

/** Resets the buckets of one rule and one key, given as facts by name. */
export type RecordedReset = {
  readonly kind: 'reset'
  readonly atUs: number
  readonly ruleId: string
  readonly key: Readonly<Record<string, string>>
  readonly position?: undefined
  readonly sampleRate?: number | undefined
  readonly node?: string | undefined
  readonly sequence?: number | undefined
}

export type RecordedRequest = RecordedCheck | RecordedRefund | RecordedReset

/** Order in which a store decided: by time, then by process and number. */
export function byTime(a: RecordedRequest, b: RecordedRequest): number {
  if (a.atUs !== b.atUs) return a.atUs - b.atUs
  if (a.node !== b.node) return (a.node ?? '') < (b.node ?? '') ? -1 : 1
  return (a.sequence ?? 0) - (b.sequence ?? 0)
}

export type ClientKind = 'user' | 'api_key' | 'ip' | 'none'

/** The client of a request: the user, else the API key, else the address. Sampling uses the same order. */
export function clientKind({ user, apiKey, ip }: Subject): ClientKind {
  if (user !== undefined) return 'user'
  if (apiKey !== undefined) return 'api_key'
  return ip === undefined ? 'none' : 'ip'
}

export function clientName({ user, apiKey, ip }: Subject): string {
  return user ?? apiKey ?? ip ?? ''
}
