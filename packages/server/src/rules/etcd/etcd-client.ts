// What rules need of etcd, through the JSON gateway of its v3 API: read the keys of a prefix as of one revision, and be
// told when they change. Every answer is bounded in time and size; a member that fails makes way for the next one.

import { reasonOf } from '../../problems/reason.ts'
import { utf8Text } from '../source-text.ts'
import type { EtcdAddress } from './etcd-address.ts'

export type EtcdKey = {
  readonly key: string
  readonly modRevision: number
  /** Undefined when its bytes are not UTF-8. */
  readonly value: string | undefined
}

/** All keys of the prefix, as they were at one revision: never a mixture. */
export type EtcdRange = { readonly revision: number; readonly keys: readonly EtcdKey[] }

type Json = Readonly<Record<string, unknown>>

const ANSWER_MS_MAX = 5000
/** Values arrive in base64, four bytes for three. */
const ANSWER_BYTES_MAX = 16 * 1024 * 1024

export class EtcdError extends Error {
  override readonly name = 'EtcdError'
}

export class EtcdClient {
  readonly #address: EtcdAddress
  readonly #range: { readonly key: string; readonly range_end: string }
  #member = 0
  #token: string | undefined

  constructor(address: EtcdAddress) {
    this.#address = address
    this.#range = { key: base64(address.prefix), range_end: base64(after(address.prefix)) }
  }

  /** With `keysOnly` the values are empty. */
  async read({ keysOnly = false }: { keysOnly?: boolean } = {}): Promise<EtcdRange> {
    const answer = JSON.parse(await this.#ask('/v3/kv/range', { ...this.#range, keys_only: keysOnly })) as Json
    const { header, kvs = [] } = answer as { header?: Json; kvs?: readonly Json[] }
    const keys = kvs.map(({ key, mod_revision: modRevision, value }) => {
      return { key: bytesOf(key).toString(), modRevision: Number(modRevision), value: utf8Text(bytesOf(value)) }
    })
    return { revision: Number(header?.revision), keys }
  }

  /**
   * The revision of each change from `fromRevision` on, as it happens. Ends when the connection does, or when etcd has
   * forgotten that revision; throws when etcd cannot be asked.
   */
  async *watch(fromRevision: number, signal: AbortSignal): AsyncGenerator<number, void> {
    const create = { ...this.#range, start_revision: String(fromRevision) }
    const response = await this.#send('/v3/watch', { create_request: create }, signal)
    try {
      for await (const line of linesOf(response)) {
        const { result, error } = JSON.parse(line) as { result?: Json; error?: Json }
        if (error !== undefined) throw new EtcdError(String(error.message))
        if (result?.canceled === true && result.compact_revision !== undefined) return
        if (result?.canceled === true) throw new EtcdError(`the watch was ended: ${result.cancel_reason}`)
        const events = (result?.events ?? []) as readonly { kv?: Json }[]
        if (events.length > 0) yield Math.max(...events.map(({ kv }) => Number(kv?.mod_revision)))
      }
    } catch (error) {
      throw this.#failed(reasonOf(error))
    }
  }

  async #ask(path: string, body: Json): Promise<string> {
    const response = await this.#send(path, body, AbortSignal.timeout(ANSWER_MS_MAX))
    try {
      return await boundedText(response)
    } catch (error) {
      throw this.#failed(reasonOf(error))
    }
  }

  async #send(path: string, body: Json, signal: AbortSignal): Promise<Response> {
    const { endpoints, login } = this.#address
    if (login !== undefined && this.#token === undefined && path !== AUTHENTICATE) await this.#authenticate(login)
    const endpoint = endpoints[this.#member % endpoints.length] ?? ''
    const headers = { 'content-type': 'application/json', ...(this.#token ? { authorization: this.#token } : {}) }
    let response: Response
    try {
      response = await fetch(endpoint + path, { method: 'POST', headers, body: JSON.stringify(body), signal })
    } catch (error) {
      throw this.#failed(`${endpoint} cannot be reached: ${reasonOf(error)}`)
    }
    if (response.ok) return response
    const said = await boundedText(response).catch(reasonOf)
    throw this.#failed(`${endpoint} answered ${response.status}: ${messageIn(said)}`)
  }

  async #authenticate({ name, password }: { name: string; password: string }): Promise<void> {
    const answer = JSON.parse(await this.#ask(AUTHENTICATE, { name, password })) as { token?: string }
    this.#token = answer.token
  }

  /** The next request goes to the next member, and with a new token: the old one may have expired. */
  #failed(message: string): EtcdError {
    this.#member += 1
    this.#token = undefined
    return new EtcdError(message)
  }
}

const AUTHENTICATE = '/v3/auth/authenticate'

/** The first key behind all that begin with a prefix. */
function after(prefix: string): string {
  return prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1)
}

function base64(value: string): string {
  return Buffer.from(value).toString('base64')
}

function bytesOf(encoded: unknown): Buffer {
  return Buffer.from(String(encoded ?? ''), 'base64')
}

async function boundedText(response: Response): Promise<string> {
  let read = ''
  for await (const chunk of chunksOf(response)) read += chunk
  return read
}

async function* linesOf(response: Response): AsyncGenerator<string> {
  let rest = ''
  for await (const chunk of chunksOf(response, () => rest.length)) {
    const lines = (rest + chunk).split('\n')
    rest = lines.pop() ?? ''
    yield* lines.filter((line) => line !== '')
  }
}

/** `held` is how much of what was read is still kept; by default all of it. */
async function* chunksOf({ body }: Response, held?: () => number): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  let read = 0
  for await (const bytes of body ?? []) {
    read += bytes.length
    if ((held?.() ?? read) > ANSWER_BYTES_MAX) throw new EtcdError(`more than ${ANSWER_BYTES_MAX} bytes in one answer`)
    yield decoder.decode(bytes, { stream: true })
  }
}

function messageIn(said: string): string {
  try {
    return String((JSON.parse(said) as Json).message)
  } catch {
    return said.slice(0, 200)
  }
}
