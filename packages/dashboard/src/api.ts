// Calls of the service. Every failure is an ApiError whose message is a sentence for people. Writes carry the CSRF
// token of the session. An ended session sends the user to the sign-in page.

import { csrfToken, type SessionAnswer, session, sessionChanged, sessionEnded } from './session.ts'

export const API = '/api/v1'

/** One invalid field of a request, as in a problem document. */
export type FieldProblem = { readonly field: string; readonly fix: string; readonly line?: number }

export class ApiError extends Error {
  override readonly name = 'ApiError'
  /** 0: the service did not answer. */
  readonly status: number
  /** Error code of the service, such as RULE_INVALID. */
  readonly code: string
  readonly fields: readonly FieldProblem[]

  constructor(message: string, status: number, code: string, fields: readonly FieldProblem[] = []) {
    super(message)
    this.status = status
    this.code = code
    this.fields = fields
  }
}

export type Params = Readonly<Record<string, string | number | boolean | undefined>>

export type Send = {
  readonly method?: 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  readonly body?: unknown
  readonly params?: Params | undefined
  readonly headers?: Readonly<Record<string, string>>
  readonly signal?: AbortSignal
}

/** Path with query; undefined and empty parameters are left out. `path` starts with a slash: `/rules`. */
export function apiUrl(path: string, params: Params = {}): string {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== '') query.set(name, String(value))
  }
  const text = query.toString()
  return `${API}${path}${text === '' ? '' : `?${text}`}`
}

/** Reads JSON. */
export async function get<T>(path: string, params?: Params, signal?: AbortSignal): Promise<T> {
  const response = await call(path, { params, ...(signal && { signal }) })
  return (await response.json()) as T
}

/** Changes something. Returns the JSON answer; undefined if the answer is empty. */
export async function send<T = undefined>(path: string, options: Send & { method: NonNullable<Send['method']> }) {
  const response = await call(path, options)
  const text = await response.text()
  return (text === '' ? undefined : JSON.parse(text)) as T
}

/** Asks who is signed in: another tab may have signed in or out. */
export async function probeSession(): Promise<void> {
  sessionChanged(await get<SessionAnswer>('/session'))
}

/** The response itself, for callers that need headers such as ETag. Throws ApiError unless it is 2xx. */
export async function call(path: string, options: Send): Promise<Response> {
  const { csrf, token_id: tokenId } = session.value ?? {}
  const response = await request(path, options)
  if (response.status !== 403 || options.method === undefined || csrf === undefined) return checked(response)
  // Another tab may have signed in since: then the CSRF token is outdated.
  await probeSession()
  if (session.value === undefined || session.value.csrf === csrf) return checked(response)
  if (session.value.token_id !== tokenId) throw otherUser()
  return checked(await request(path, options))
}

/** The response, if it is 2xx; otherwise throws its problem. A 401 ends the session. */
export async function checked(response: Response): Promise<Response> {
  if (response.ok) return response
  const error = await errorOf(response)
  if (response.status === 401) sessionEnded(error.message)
  throw error
}

/** Refuses to repeat the change: it would act with another token than the user saw. */
function otherUser(): ApiError {
  const { token_name: name, role } = session.value ?? {}
  const message = `Another tab signed in as ${name} (${role}). Nothing was changed: repeat it as ${name}.`
  return new ApiError(message, 403, 'OTHER_USER')
}

async function request(path: string, { method, body, params, headers = {}, signal }: Send): Promise<Response> {
  const isText = typeof body === 'string'
  return fetch(apiUrl(path, params), {
    method: method ?? 'GET',
    headers: {
      accept: 'application/json',
      ...(body !== undefined && !isText && { 'content-type': 'application/json' }),
      ...(method !== undefined && { 'x-sluice-csrf': csrfToken() }),
      ...headers,
    },
    ...(body !== undefined && { body: isText ? body : JSON.stringify(body) }),
    ...(signal && { signal }),
    credentials: 'same-origin',
  }).catch((error: unknown) => {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    throw new ApiError('The service does not answer. Is it running?', 0, 'UNREACHABLE')
  })
}

type Problem = { readonly detail?: string; readonly title?: string; readonly code?: string; errors?: FieldProblem[] }

async function errorOf(response: Response): Promise<ApiError> {
  const problem = (await response.json().catch(() => ({}))) as Problem
  const message = problem.detail ?? problem.title ?? `The service answered ${response.status}.`
  return new ApiError(message, response.status, problem.code ?? 'UNKNOWN', problem.errors ?? [])
}

/** Sentence for any thrown value. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
