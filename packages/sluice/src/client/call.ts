// A call of fetch as far as politeness is concerned: where it goes, whose limits it meets, and whether it may be sent a
// second time. What may have had an effect, or cannot be read twice, is never repeated.

export type Call = {
  readonly url: URL
  /** In upper case. */
  readonly method: string
  readonly headers: Headers
}

/** RFC 9110, 9.2.2: sent twice, these have the effect of being sent once. */
const IDEMPOTENT = ['GET', 'HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE']

export function callOf(input: FetchInput, init: RequestInit | undefined): Call {
  const request = input instanceof Request ? input : undefined
  // A page or a worker may leave its own origin out of an address.
  const base = (globalThis as { readonly location?: { readonly href: string } }).location?.href
  return {
    url: new URL(request?.url ?? String(input), base),
    method: (init?.method ?? request?.method ?? 'GET').toUpperCase(),
    headers: new Headers(init?.headers ?? request?.headers),
  }
}

export type FetchInput = string | URL | Request

/** Without an effect of its own, or with a key by which the server knows it again. */
export function isIdempotent({ method, headers }: Call): boolean {
  return IDEMPOTENT.includes(method) || Boolean(headers.get('idempotency-key'))
}

/** A stream is used up by the first call. The body of a Request is one too. */
export function isReadAgain(input: FetchInput, init: RequestInit | undefined): boolean {
  const body: unknown = init?.body ?? (input instanceof Request ? input.body : undefined)
  if (body === undefined || body === null || typeof body === 'string') return true
  return [URLSearchParams, FormData, Blob, ArrayBuffer].some((type) => body instanceof type) || ArrayBuffer.isView(body)
}

export function signalOf(input: FetchInput, init: RequestInit | undefined): AbortSignal | undefined {
  return init?.signal ?? (input instanceof Request ? input.signal : undefined)
}
