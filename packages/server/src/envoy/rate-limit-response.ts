// RateLimitResponse of Envoy's rate limit service. Written for gRPC by grpc/envoy/, as JSON by rate-limit-json.ts.

export const CODE = { ok: 1, overLimit: 2 } as const

export type Code = (typeof CODE)[keyof typeof CODE]

/** Limit of a descriptor. One object per limit, so that its bytes are written once. */
export class CurrentLimit {
  readonly requestsPerUnit: number
  /** Number of the unit on the wire; 0: the window is not one of the units. */
  readonly unit: number
  readonly windowSeconds: number
  readonly name: string
  /** Its bytes, after the first response that has it. */
  encoded: Uint8Array | undefined = undefined

  constructor(requestsPerUnit: number, unit: number, windowSeconds: number, name: string) {
    this.requestsPerUnit = requestsPerUnit
    this.unit = unit
    this.windowSeconds = windowSeconds
    this.name = name
  }
}

export type Status = {
  readonly code: Code
  /** Undefined: no limit matched. */
  readonly limit: CurrentLimit | undefined
  readonly remaining: number
  /**
   * OVER_LIMIT: time until the same request passes. OK: time until the limit is full again. Undefined: no limit
   * matched, or waiting will not help.
   */
  readonly resetSeconds: number | undefined
}

export type Header = { readonly key: string; readonly value: string }

export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json }

export type RateLimitResponse = {
  readonly code: Code
  readonly statuses: readonly Status[]
  readonly headers: readonly Header[]
  readonly metadata: Readonly<Record<string, Json>> | undefined
}

export const NO_HEADERS: readonly Header[] = []
/** Status of a descriptor that no limit matches. */
export const UNMATCHED: Status = { code: CODE.ok, limit: undefined, remaining: 0, resetSeconds: undefined }

export const UINT32_MAX = 4_294_967_295
