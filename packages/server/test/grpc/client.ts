// A gRPC client on `node:http2` for tests: complete messages in and out, status and trailers.

import { type ClientHttp2Session, type ClientHttp2Stream, connect, type SecureClientSessionOptions } from 'node:http2'
import { onTestFinished } from 'vitest'
import { framed, MessageParser } from '../../src/grpc/message-parser.ts'

const BYTES_MAX = 64 * 1024 * 1024

export type GrpcAnswer = { readonly status: number; readonly detail: string; readonly messages: Buffer[] }

export type GrpcStream = {
  readonly stream: ClientHttp2Stream
  readonly messages: Buffer[]
  /** `flag`: first byte of the message; 1 if it is compressed. */
  send(message: Uint8Array, flag?: number): void
  end(): void
  /** Resolves when there are so many messages; rejects if the stream ends before. */
  count(messages: number): Promise<void>
  readonly done: Promise<GrpcAnswer>
}

export type GrpcClient = {
  readonly session: ClientHttp2Session
  call(path: string, message: Uint8Array, headers?: Record<string, string>, flag?: number): Promise<GrpcAnswer>
  open(path: string, headers?: Record<string, string>): GrpcStream
  close(): void
}

/** `address`: such as `http://127.0.0.1:8081`. Closed when the test ends. */
export function grpcClient(address: string, options: SecureClientSessionOptions = {}): GrpcClient {
  const session = connect(address, options)
  session.on('error', () => {}) // calls report it
  onTestFinished(() => session.destroy())
  const open = (path: string, headers: Record<string, string> = {}) => openStream(session, path, headers)
  return {
    session,
    open,
    call: (path, message, headers, flag) => {
      const stream = open(path, headers)
      stream.send(message, flag)
      stream.end()
      return stream.done
    },
    close: () => session.destroy(),
  }
}

function openStream(session: ClientHttp2Session, path: string, headers: Record<string, string>): GrpcStream {
  const stream = session.request({
    ':method': 'POST',
    ':path': path,
    'content-type': 'application/grpc',
    te: 'trailers',
    ...headers,
  })
  const messages: Buffer[] = []
  const parser = new MessageParser(BYTES_MAX)
  const waiting: { count: number; resolve: () => void; reject: (error: Error) => void }[] = []
  stream.on('data', (chunk: Buffer) => {
    parser.add(chunk)
    for (let message = parser.next(); message !== undefined; message = parser.next()) messages.push(message)
    for (const one of waiting) if (messages.length >= one.count) one.resolve()
  })
  const done = statusOf(stream).then((status) => ({ ...status, messages }))
  const ended = (why: unknown) => {
    for (const one of waiting) one.reject(new Error(`the stream ended: ${JSON.stringify(why)}`))
  }
  done.then(ended, ended)
  return {
    stream,
    messages,
    done,
    send: (message, flag = 0) => {
      const frame = framed(message)
      frame[0] = flag
      stream.write(frame)
    },
    end: () => void stream.end(),
    count: (count) =>
      new Promise((resolve, reject) => {
        if (messages.length >= count) resolve()
        else waiting.push({ count, resolve, reject })
      }),
  }
}

function statusOf(stream: ClientHttp2Stream): Promise<{ status: number; detail: string }> {
  return new Promise((resolve, reject) => {
    let found: { status: number; detail: string } | undefined
    const read = (headers: Record<string, unknown>) => {
      const status = headers['grpc-status']
      if (status === undefined) return
      found = { status: Number(status), detail: decodeURIComponent(String(headers['grpc-message'] ?? '')) }
    }
    let httpStatus: unknown
    stream.on('response', (headers) => {
      httpStatus = headers[':status']
      read(headers)
    })
    stream.on('trailers', read)
    stream.on('error', reject)
    stream.on('close', () => {
      if (found !== undefined) resolve(found)
      else reject(new Error(`no grpc-status; HTTP ${String(httpStatus)}, reset with ${stream.rstCode}`))
    })
  })
}
