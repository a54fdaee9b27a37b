// HTTP client of ClickHouse. Works with every version since 18.16: it uses no query parameters and sends no setting
// that 18.16 does not know, because an unknown setting is an error.

import { randomUUID } from 'node:crypto'
import { type Dispatcher, Pool } from 'undici'
import type { ClickHouseUrl } from '../../settings/clickhouse-url.ts'

/** Values of settings in the URL. */
export type QuerySettings = Readonly<Record<string, string | number>>

/** The operations that sink and analytics need; tests implement them on an embedded engine. */
export interface ClickHouse {
  readonly database: string
  /** Runs a statement that returns no rows. */
  command(sql: string, queryId?: string): Promise<void>
  insertSelect(insert: InsertSelect): Promise<void>
  /** Returns the rows of a SELECT without a FORMAT clause. Numbers of 64 bits may be strings. */
  query<Row>(sql: string): Promise<Row[]>
  close(): Promise<void>
}

/**
 * An INSERT … SELECT that reads lines of JSONEachRow as the table `sent`, so that it can check conditions. Unknown
 * fields in lines are an error.
 */
export type InsertSelect = {
  readonly sql: string
  /** Columns of `sent` with their types. */
  readonly structure: string
  readonly lines: string
  /** A second query with the id of a running one is refused. */
  readonly queryId: string
  readonly settings: QuerySettings
}

/** `code`: number of ClickHouse's error; undefined if the server was not reached or its answer was lost. */
export class ClickHouseError extends Error {
  override readonly name = 'ClickHouseError'
  readonly code: number | undefined
  constructor(message: string, code?: number) {
    super(message)
    this.code = code
  }
}

export type ClientTimeouts = { readonly writeMs: number; readonly queryMs: number }

const TIMEOUTS: ClientTimeouts = { writeMs: 30_000, queryMs: 10_000 }
const CONNECT_MS_MAX = 5000
const CONNECTIONS_MAX = 8
/** ClickHouse 18.16 closes idle connections after 3 s. */
const IDLE_MS_MAX = 1000
const ANSWER_BYTES_MAX = 64 * 2 ** 20
const REASON_CHARACTERS_MAX = 300

export class ClickHouseClient implements ClickHouse {
  readonly database: string
  readonly #url: ClickHouseUrl
  readonly #pool: Pool
  readonly #timeouts: ClientTimeouts

  constructor(url: ClickHouseUrl, timeouts: ClientTimeouts = TIMEOUTS) {
    this.database = url.database
    this.#url = url
    this.#timeouts = timeouts
    this.#pool = new Pool(url.origin, {
      connections: CONNECTIONS_MAX,
      keepAliveTimeout: IDLE_MS_MAX,
      keepAliveMaxTimeout: IDLE_MS_MAX,
      connect: { timeout: CONNECT_MS_MAX },
      headersTimeout: 0, // each request has its own timeout
      bodyTimeout: 0,
    })
  }

  async ping(): Promise<void> {
    await this.#request({ method: 'GET', path: '/ping' }, this.#timeouts.queryMs)
  }

  async command(sql: string, queryId?: string): Promise<void> {
    await this.#post({ ...(queryId === undefined ? {} : { query_id: queryId }) }, sql, this.#timeouts.writeMs)
  }

  async insertSelect({ sql, structure, lines, queryId, settings }: InsertSelect): Promise<void> {
    const boundary = randomUUID()
    const head = 'Content-Disposition: form-data; name="sent"; filename="sent"\r\n\r\n'
    const body = Buffer.from(`--${boundary}\r\n${head}${lines}\r\n--${boundary}--\r\n`)
    const headers = { 'content-type': `multipart/form-data; boundary=${boundary}` }
    const sent = { sent_format: 'JSONEachRow', sent_structure: structure }
    await this.#post({ ...settings, ...sent, query_id: queryId, query: sql }, body, this.#timeouts.writeMs, headers)
  }

  async query<Row>(sql: string): Promise<Row[]> {
    const { queryMs } = this.#timeouts
    // wait_end_of_query: an error after the first rows still gets an error status.
    const settings = { max_execution_time: Math.ceil(queryMs / 1000), wait_end_of_query: 1, readonly: 2 }
    const text = await this.#post(settings, `${sql} FORMAT JSONEachRow`, queryMs)
    return text === ''
      ? []
      : text
          .trimEnd()
          .split('\n')
          .map(parseRow<Row>)
  }

  async close(): Promise<void> {
    await this.#pool.destroy()
  }

  #post(settings: QuerySettings, body: string | Buffer, ms: number, headers: object = {}): Promise<string> {
    const parameters = new URLSearchParams()
    for (const [name, value] of Object.entries(settings)) parameters.set(name, String(value))
    return this.#request({ method: 'POST', path: `/?${parameters}`, body, headers: { ...headers } }, ms)
  }

  async #request(options: Dispatcher.RequestOptions, ms: number): Promise<string> {
    const { user, password } = this.#url
    const credentials = `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`
    const authorization = user === '' && password === '' ? {} : { authorization: credentials }
    const headers = { ...(options.headers as object), ...authorization }
    const signal = AbortSignal.timeout(ms)
    try {
      const response = await this.#pool.request({ ...options, headers, signal })
      const text = await readText(response)
      if (response.statusCode !== 200) throw this.#answerError(response, text)
      return text
    } catch (error) {
      if (error instanceof ClickHouseError) throw error
      const reason = signal.aborted ? `no answer within ${ms} ms` : reasonOf(error)
      throw new ClickHouseError(`ClickHouse at ${this.#url.origin} failed: ${this.#clean(reason)}`)
    }
  }

  #answerError({ statusCode, headers }: Dispatcher.ResponseData, text: string): ClickHouseError {
    const code = /^Code: (\d+)/.exec(text)?.[1] ?? headers['x-clickhouse-exception-code']
    const reason = this.#clean(text.replace(/, e\.what\(\) = .*$/s, ''))
    const message = `ClickHouse at ${this.#url.origin} answered ${statusCode}: ${reason}`
    return new ClickHouseError(message, code === undefined ? undefined : Number(code))
  }

  /** One line without control characters, without the password, of bounded length. */
  #clean(text: string): string {
    const { password } = this.#url
    const line = text.replace(/\p{Cc}+/gu, ' ').trim()
    const safe = password === '' ? line : line.replaceAll(password, '***')
    return safe.length > REASON_CHARACTERS_MAX ? `${safe.slice(0, REASON_CHARACTERS_MAX)}…` : safe
  }
}

async function readText({ body, headers }: Dispatcher.ResponseData): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of body as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > ANSWER_BYTES_MAX) throw new ClickHouseError(`the answer exceeds ${ANSWER_BYTES_MAX} bytes`)
    chunks.push(chunk)
  }
  if (headers['content-length'] !== undefined && Number(headers['content-length']) !== bytes) {
    throw new ClickHouseError('the answer is incomplete')
  }
  return Buffer.concat(chunks).toString()
}

function parseRow<Row>(line: string): Row {
  return JSON.parse(line) as Row // the columns are those of the query
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const { code } = error as NodeJS.ErrnoException
  return code === undefined || error.message.includes(code) ? error.message : `${code} ${error.message}`
}
