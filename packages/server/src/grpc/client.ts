// A small gRPC client on `node:http2`, for the command line: one message out, all messages of the answer in.

import { connect } from 'node:http2'
import { framed, MessageParser } from './message-parser.ts'
import { GRPC_STATUS } from './method.ts'

export type ClientOptions = {
  /** `http://host:port`, or `https://` for TLS. */
  readonly url: string
  readonly token: string | undefined
  /** PEM files of TLS: the CA of the server, and the certificate and key of this client. */
  readonly ca?: Buffer | undefined
  readonly cert?: Buffer | undefined
  readonly key?: Buffer | undefined
  readonly timeoutMs: number
}

/** A call that ended with another status than OK. */
export class CallFailed extends Error {
  /** Name of the status, such as `unavailable`; its number if this client does not know it. */
  readonly status: string

  constructor(code: number, message: string) {
    super(message)
    this.name = 'CallFailed'
    this.status = Object.entries(GRPC_STATUS).find(([, known]) => known === code)?.[0] ?? String(code)
  }
}

const ANSWER_BYTES_MAX = 64 * 1024 * 1024

/** Rejects with CallFailed, or with an error of the connection. */
export function callOnce(options: ClientOptions, path: string, message: Uint8Array): Promise<Buffer[]> {
  const { url, token, ca, cert, key, timeoutMs } = options
  const session = connect(url, { ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }) })
  return new Promise<Buffer[]>((resolve, reject) => {
    session.on('error', reject)
    session.on('close', () => reject(new Error('the connection was closed')))
    const timer = setTimeout(() => reject(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs)
    session.on('close', () => clearTimeout(timer))
    const stream = session.request({
      ...{ ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' },
      'grpc-timeout': `${timeoutMs}m`,
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    })
    const parser = new MessageParser(ANSWER_BYTES_MAX)
    const messages: Buffer[] = []
    const settle = (headers: Readonly<Record<string, unknown>>) => {
      const status = headers['grpc-status']
      if (status === '0') resolve(messages)
      else if (status !== undefined) reject(new CallFailed(Number(status), decoded(headers['grpc-message'])))
    }
    stream.on('error', reject)
    stream.on('response', (headers) => {
      if (headers[':status'] !== 200) reject(new Error(`this is no gRPC server: HTTP status ${headers[':status']}`))
      settle(headers)
    })
    stream.on('trailers', settle)
    stream.on('data', (chunk: Buffer) => {
      try {
        parser.add(chunk)
        for (let next = parser.next(); next !== undefined; next = parser.next()) messages.push(next)
      } catch (error) {
        reject(error as Error)
      }
    })
    stream.end(framed(message))
  }).finally(() => session.destroy())
}

function decoded(text: unknown): string {
  try {
    return decodeURIComponent(String(text ?? ''))
  } catch {
    return String(text)
  }
}
