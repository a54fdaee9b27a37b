// HTTP client of the commands. Failures become messages with a fix, and the matching exit code.

import { WAIT_SECONDS_MAX } from '../http/wait-for-nodes.ts'
import { protocolMistake } from '../problems/protocol-mistake.ts'
import { reasonOf } from '../problems/reason.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { escaped } from '../text/escaped.ts'
import type { Given } from './arguments.ts'
import { CommandError, type Flag } from './command.ts'

export const SERVER_FLAGS: readonly Flag[] = [
  {
    name: 'url',
    value: '<url>',
    env: 'SLUICE_URL',
    help: 'URL of the node.',
    fallback: 'http://127.0.0.1:8080',
    accepts: (text) => /^https?:\/\/[^@]+$/.test(text) && URL.canParse(text),
    fix: 'give a URL such as http://127.0.0.1:8080, without user and password',
  },
  {
    name: 'token',
    value: '<token>',
    env: 'SLUICE_TOKEN',
    help: 'API token. Prefer the variable: other users can see command-line arguments.',
    secret: true,
    accepts: (text) => /^[\x21-\x7e]+$/.test(text),
    fix: 'give a token without spaces',
  },
]

export const WHEN_READY_FLAG: Flag = {
  name: 'when-ready',
  help: 'If nodes of an older version would ignore the change, wait until they are upgraded or stopped.',
}

export type ApiResponse = { readonly status: number; readonly headers: Headers; readonly text: string }

type Problem = {
  readonly code?: string
  readonly detail?: string
  readonly errors?: readonly { readonly field: string; readonly value?: unknown; readonly fix: string }[]
}

const RESPONSE_MS_MAX = 30_000

export type ServerSentEvent = { readonly type: string; readonly data: string }

/** The node given by --url and --token. */
export class Api {
  readonly url: string
  readonly #token: string | undefined
  /** Tells why a write waits; undefined without --when-ready. */
  readonly #tellWait: ((text: string) => void) | undefined
  /** The command has --when-ready. */
  readonly #canWait: boolean

  /** `terminal`: for commands with --when-ready. */
  constructor(given: Given, terminal?: Pick<Terminal, 'tell'>) {
    this.url = (given.text('url') ?? '').replace(/\/+$/, '')
    this.#token = given.text('token')
    this.#canWait = terminal !== undefined
    this.#tellWait = given.has('when-ready') ? terminal?.tell : undefined
  }

  async get<T>(path: string): Promise<T> {
    return JSON.parse((await this.send('GET', path)).text) as T
  }

  async post<T>(path: string, body: unknown): Promise<T> {
    return JSON.parse((await this.send('POST', path, { body: JSON.stringify(body) })).text) as T
  }

  /** Server-sent events until the server ends the stream. */
  async *stream(path: string): AsyncGenerator<ServerSentEvent> {
    const response = await this.#fetch('GET', path, {}).catch((error: unknown) => {
      throw this.#unreachable(error)
    })
    if (!response.ok || response.body === null) throw errorFrom(this.url, await answerOf(response))
    let text = ''
    try {
      for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
        text += chunk
        const blocks = text.split('\n\n')
        text = blocks.pop() ?? ''
        for (const block of blocks) {
          const field = (name: string) => new RegExp(`^${name}: (.*)$`, 'm').exec(block)?.[1] ?? ''
          yield { type: field('event'), data: field('data') }
        }
      }
    } catch (error) {
      throw this.#unreachable(error)
    }
  }

  /** Throws unless the status is 2xx. With --when-ready, sends the request again while older nodes prevent it. */
  async send(
    method: string,
    path: string,
    { body, headers = {} }: { body?: string; headers?: Record<string, string> } = {},
  ): Promise<ApiResponse> {
    let waits: Record<string, string> = {}
    for (;;) {
      try {
        return await this.#sendOnce(method, path, body, { ...headers, ...waits })
      } catch (error) {
        if (!(error instanceof NodesOutdated)) throw error
        if (this.#tellWait === undefined) throw this.#canWait ? error.withAdvice() : error
        if (waits.prefer === undefined) this.#tellWait(`${error.message}\nwaiting until they are upgraded or stopped\n`)
        waits = { prefer: `wait=${WAIT_SECONDS_MAX}` }
      }
    }
  }

  async #sendOnce(
    method: string,
    path: string,
    body: string | undefined,
    headers: Record<string, string>,
  ): Promise<ApiResponse> {
    const type = body === undefined ? {} : { 'content-type': 'application/json' }
    const signal = AbortSignal.timeout(RESPONSE_MS_MAX)
    const rest = body === undefined ? { signal } : { signal, body }
    try {
      const answer = await answerOf(await this.#fetch(method, path, { ...rest, headers: { ...type, ...headers } }))
      if (answer.status >= 200 && answer.status < 300) return answer
      throw errorFrom(this.url, answer)
    } catch (error) {
      throw error instanceof CommandError ? error : this.#unreachable(error)
    }
  }

  #fetch(method: string, path: string, init: RequestInit): Promise<Response> {
    const authorization = this.#token === undefined ? {} : { authorization: `Bearer ${this.#token}` }
    return fetch(this.url + path, { ...init, method, headers: { ...authorization, ...(init.headers as object) } })
  }

  #unreachable(error: unknown): CommandError {
    const { reason, fix } = protocolMistake(error) ?? {
      reason: reasonOf(error),
      fix: 'Is a node running there? Use --url for a different node.',
    }
    return new CommandError(`${this.url} is unreachable: ${reason}\n  ${fix}`)
  }
}

/** Nodes of an older version would ignore the change. */
class NodesOutdated extends CommandError {
  withAdvice(): CommandError {
    return new CommandError(
      `${this.message}\n  To wait until they are upgraded or stopped: --when-ready.`,
      this.exitCode,
    )
  }
}

/** The rules have changed since the version that the request names. */
export class VersionConflict extends CommandError {}

async function answerOf(response: Response): Promise<ApiResponse> {
  return { status: response.status, headers: response.headers, text: await response.text() }
}

function errorFrom(url: string, { status, text }: ApiResponse): CommandError {
  const { detail = text.slice(0, 200), code = '', errors = [] } = problemIn(text)
  const lines = errors.map(
    ({ field, value, fix }) => `\n  ${escaped(`${field}: ${fix} (got ${JSON.stringify(value) ?? 'nothing'})`)}`,
  )
  const isConflict = code === 'VERSION_CONFLICT' // its fields name headers, which the user did not write
  const reason = lines.length > 0 && !isConflict ? lines.join('') : ` ${escaped(detail)}`
  const advice = code === 'APPROVAL_FORBIDDEN' ? '' : (ADVICE[status] ?? '') // its detail has the fix
  const Kind = code === 'NODES_OUTDATED' ? NodesOutdated : isConflict ? VersionConflict : CommandError
  return new Kind(`${url} returned ${status} ${escaped(code)}:${reason}${advice}`, exitCodeOf(status))
}

const ADVICE: Readonly<Record<number, string>> = {
  401:
    '\n  Pass a token with --token or SLUICE_TOKEN: the one that the first start of the node printed, or that of its ' +
    '--admin-token.',
  403: '\n  Pass a token with a sufficient role; create one with sluice token create.',
}

function exitCodeOf(status: number): number {
  if (status === 400 || status === 404 || status === 422) return EXIT.invalid
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
