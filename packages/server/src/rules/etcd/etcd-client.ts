// Minimal etcd client for the JSON gateway of the v3 API: reads the keys with a prefix at one revision and watches
// them. Bounds replies in time and size, and switches to the next member after a failure.

import { reasonOf } from '../../problems/reason.ts'
import type { EtcdAddress } from '../../settings/etcd-address.ts'
import { utf8Text } from '../source-text.ts'

export type EtcdKey = {
  readonly key: string
  readonly modRevision: number
  /** Undefined if its bytes are not UTF-8. */
  readonly value: string | undefined
}

/** All keys of the prefix, consistent at one revision. */
export type EtcdRange = { readonly revision: number; readonly keys: readonly EtcdKey[] }

type Json = Readonly<Record<string, unknown>>

const REPLY_MS_MAX = 5000
/** Counted in base64, which is a third longer than the values. */
const REPLY_BYTES_MAX = 16 * 1024 * 1024

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
    this.#range = { key: base64(address.prefix), range_end: base64(keyAfter(address.prefix)) }
  }

  /** With `keysOnly` the values are empty. */
  async read({ keysOnly = false }: { keysOnly?: boolean } = {}): Promise<EtcdRange> {
    const reply = JSON.parse(await this.#request('/v3/kv/range', { ...this.#range, keys_only: keysOnly })) as Json
    const { header, kvs = [] } = reply as { header?: Json; kvs?: readonly Json[] }
    const keys = kvs.map(({ key, mod_revision: modRevision, value }) => {
      return { key: bytesOf(key).toString(), modRevision: Number(modRevision), value: utf8Text(bytesOf(value)) }
    })
    return { revision: Number(header?.revision), keys }
  }

  /**
   * Yields the revision of each change from `fromRevision` on. Ends when the connection closes or the revision has been
   * compacted; throws if etcd is unreachable.
   */
  async *watch(fromRevision: number, signal: AbortSignal): AsyncGenerator<number, void> {
    const create = { ...this.#range, start_revision: String(fromRevision) }
    const response = await this.#send('/v3/watch', { create_request: create }, signal)
    try {
      for await (const line of linesOf(response)) {
        const { result, error } = JSON.parse(line) as { result?: Json; error?: Json }
        if (error !== undefined) throw new EtcdError(String(error.message))
        if (result?.canceled === true && result.compact_revision !== undefined) return
        if (result?.canceled === true) throw new EtcdError(`etcd cancelled the watch: ${result.cancel_reason}`)
        const events = (result?.events ?? []) as readonly { kv?: Json }[]
        if (events.length > 0) yield Math.max(...events.map(({ kv }) => Number(kv?.mod_revision)))
      }
    } catch (error) {
      throw this.#failed(reasonOf(error))
    }
  }

  async #request(path: string, body: Json): Promise<string> {
    const response = await this.#send(path, body, AbortSignal.timeout(REPLY_MS_MAX))
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
      throw this.#failed(`${endpoint} is unreachable: ${reasonOf(error)}`)
    }
    if (response.ok) return response
    const text = await boundedText(response).catch(reasonOf)
    throw this.#failed(`${endpoint} returned ${response.status}: ${messageIn(text)}`)
  }

  async #authenticate({ name, password }: { name: string; password: string }): Promise<void> {
    const reply = JSON.parse(await this.#request(AUTHENTICATE, { name, password })) as { token?: string }
    this.#token = reply.token
  }

  /** Switches to the next member and a new token, because the old one may have expired. */
  #failed(message: string): EtcdError {
    this.#member += 1
    this.#token = undefined
    return new EtcdError(message)
  }
}

const AUTHENTICATE = '/v3/auth/authenticate'

/** The first key after all keys with a prefix. */
function keyAfter(prefix: string): string {
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

/** `buffered` returns the length of the text still in memory. By default, all chunks count. */
async function* chunksOf({ body }: Response, buffered?: () => number): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  let read = 0
  for await (const bytes of body ?? []) {
    read += bytes.length
    if ((buffered?.() ?? read) > REPLY_BYTES_MAX) throw new EtcdError(`reply exceeds ${REPLY_BYTES_MAX} bytes`)
    yield decoder.decode(bytes, { stream: true })
  }
}

function messageIn(text: string): string {
  try {
    return String((JSON.parse(text) as Json).message)
  } catch {
    return text.slice(0, 200)
  }
}
