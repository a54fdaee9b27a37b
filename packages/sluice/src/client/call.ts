// A call of fetch: its destination, and whether it may be retried. Calls that may have had an effect, or whose body
// cannot be read twice, are never retried.

export type Call = {
  readonly url: URL
  /** In upper case. */
  readonly method: string
  readonly headers: Headers
}

/** Idempotent methods (RFC 9110, 9.2.2). */
const IDEMPOTENT = ['GET', 'HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE']

export function callOf(input: FetchInput, init: RequestInit | undefined): Call {
  const request = input instanceof Request ? input : undefined
  // In a page or a worker, URLs may be relative.
  const base = (globalThis as { readonly location?: { readonly href: string } }).location?.href
  return {
    url: new URL(request?.url ?? String(input), base),
    method: (init?.method ?? request?.method ?? 'GET').toUpperCase(),
    headers: new Headers(init?.headers ?? request?.headers),
  }
}

export type FetchInput = string | URL | Request

/** An idempotent method, or an idempotency key. */
export function isIdempotent({ method, headers }: Call): boolean {
  return IDEMPOTENT.includes(method) || Boolean(headers.get('idempotency-key'))
}

/** A stream, such as the body of a Request, is consumed by the first call. */
export function isReplayable(input: FetchInput, init: RequestInit | undefined): boolean {
  const body: unknown = init?.body ?? (input instanceof Request ? input.body : undefined)
  if (body === undefined || body === null || typeof body === 'string') return true
  return [URLSearchParams, FormData, Blob, ArrayBuffer].some((type) => body instanceof type) || ArrayBuffer.isView(body)
}

export function signalOf(input: FetchInput, init: RequestInit | undefined): AbortSignal | undefined {
  return init?.signal ?? (input instanceof Request ? input.signal : undefined)
}
