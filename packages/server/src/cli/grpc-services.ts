// Reads the answers of gRPC reflection: names of services, and their methods from file descriptors.

import { ProtobufReader } from '../grpc/protobuf.ts'

/** `request` and `response` are names of messages, with `stream ` before those of a stream. */
export type ListedMethod = { readonly name: string; readonly request: string; readonly response: string }

/** Values of a repeated field of messages, strings or bytes. */
function all(message: Uint8Array, wanted: number): Buffer[] {
  const reader = new ProtobufReader(message)
  const found: Buffer[] = []
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === wanted) found.push(reader.bytes())
    else reader.skip()
  }
  return found
}

function textOf(message: Uint8Array, field: number): string {
  return all(message, field)[0]?.toString() ?? ''
}

export function readServices(answer: Uint8Array): string[] {
  return all(answer, 6)
    .flatMap((list) => all(list, 1))
    .map((service) => textOf(service, 1))
}

/** Methods of a service, from a FileDescriptorResponse. */
export function readMethods(answer: Uint8Array, service: string): ListedMethod[] {
  const files = all(answer, 4).flatMap((list) => all(list, 1))
  return files.flatMap((file) => {
    const pack = textOf(file, 2)
    const found = all(file, 6).filter((one) => `${pack}.${textOf(one, 1)}` === service)
    return found.flatMap((one) => all(one, 2)).map(methodOf)
  })
}

function methodOf(method: Uint8Array): ListedMethod {
  const streams = flagsOf(method)
  const type = (field: number, isStream: boolean) => `${isStream ? 'stream ' : ''}${textOf(method, field).slice(1)}`
  return { name: textOf(method, 1), request: type(2, streams.client), response: type(3, streams.server) }
}

function flagsOf(method: Uint8Array): { client: boolean; server: boolean } {
  const reader = new ProtobufReader(method)
  const flags = { client: false, server: false }
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 5) flags.client = reader.bool()
    else if (field === 6) flags.server = reader.bool()
    else reader.skip()
  }
  return flags
}
