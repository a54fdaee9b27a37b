// Requests to a running node. What goes wrong ends in a message that says what to do, and in the exit code that fits.

import { reasonOf } from '../problems/reason.ts'
import type { Given } from './arguments.ts'
import { CommandError, EXIT, type Flag } from './command.ts'

export const SERVER_FLAGS: readonly Flag[] = [
  {
    name: 'url',
    value: '<url>',
    env: 'SLUICE_URL',
    help: 'The node to ask.',
    fallback: 'http://127.0.0.1:8080',
    accepts: (text) => /^https?:\/\/[^@]+$/.test(text) && URL.canParse(text),
    fix: 'give a URL such as http://127.0.0.1:8080, without user and password',
  },
  {
    name: 'token',
    value: '<token>',
    env: 'SLUICE_TOKEN',
    help: 'Token that the node knows; better given as a variable than where everybody sees it.',
    secret: true,
    accepts: (text) => /^[\x21-\x7e]+$/.test(text),
    fix: 'give a token without spaces',
  },
]

export type Answer = { readonly status: number; readonly headers: Headers; readonly text: string }

type Problem = {
  readonly code?: string
  readonly detail?: string
  readonly errors?: readonly { readonly field: string; readonly value?: unknown; readonly fix: string }[]
}

const ANSWER_MS_MAX = 30_000

/** A node that was named by --url and --token. */
export class Api {
  readonly url: string
  readonly #token: string | undefined

  constructor(given: Given) {
    this.url = (given.text('url') ?? '').replace(/\/+$/, '')
    this.#token = given.text('token')
  }

  async get<T>(path: string): Promise<T> {
    return JSON.parse((await this.send('GET', path)).text) as T
  }

  async post<T>(path: string, body: unknown): Promise<T> {
    return JSON.parse((await this.send('POST', path, { body: JSON.stringify(body) })).text) as T
  }

  /** Throws unless the answer is a good one. */
  async send(
    method: string,
    path: string,
    { body, headers = {} }: { body?: string; headers?: Record<string, string> } = {},
  ): Promise<Answer> {
    const authorization = this.#token === undefined ? {} : { authorization: `Bearer ${this.#token}` }
    const type = body === undefined ? {} : { 'content-type': 'application/json' }
    const signal = AbortSignal.timeout(ANSWER_MS_MAX)
    const init = {
      method,
      headers: { ...type, ...authorization, ...headers },
      signal,
      ...(body === undefined ? {} : { body }),
    }
    try {
      const response = await fetch(this.url + path, init)
      const answer = { status: response.status, headers: response.headers, text: await response.text() }
      if (response.ok) return answer
      throw refusalOf(this.url, answer)
    } catch (error) {
      if (error instanceof CommandError) throw error
      throw new CommandError(
        `${this.url} cannot be reached: ${reasonOf(error)}\n  Is a node running there? --url names another.`,
      )
    }
  }
}

function refusalOf(url: string, { status, text }: Answer): CommandError {
  const { detail = text.slice(0, 200), code = '', errors = [] } = problemIn(text)
  const lines = errors.map(
    ({ field, value, fix }) => `\n  ${field}: ${fix} (got ${JSON.stringify(value) ?? 'nothing'})`,
  )
  const said = lines.length > 0 ? lines.join('') : ` ${detail}`
  return new CommandError(`${url} answered ${status} ${code}:${said}${ADVICE[status] ?? ''}`, exitCodeOf(status))
}

const ADVICE: Readonly<Record<number, string>> = {
  401: '\n  Give a token with --token or SLUICE_TOKEN; sluice token create makes one.',
  403: '\n  Give a token of a role that may do this; sluice token create makes one.',
}

function exitCodeOf(status: number): number {
  if (status === 400 || status === 404 || status === 422) return EXIT.wrong
  if (status === 401 || status === 403) return EXIT.denied
  return status === 409 || status === 412 ? EXIT.conflict : EXIT.failed
}

function problemIn(text: string): Problem {
  try {
    return JSON.parse(text) as Problem
  } catch {
    return {}
  }
}
