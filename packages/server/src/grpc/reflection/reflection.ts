// grpc.reflection.v1 and v1alpha, which have the same messages: lists the services of this node and the descriptors of
// their messages, so that clients such as grpcurl need no .proto files. Needs no token, as /openapi.json.

import { GRPC_STATUS, type Method } from '../method.ts'
import { ProtobufReader, ProtobufWriter } from '../protobuf.ts'
import { PROTO_FILES, type ProtoFile } from './descriptors.generated.ts'

export const REFLECTION_SERVICES: readonly string[] = [
  'grpc.reflection.v1.ServerReflection',
  'grpc.reflection.v1alpha.ServerReflection',
]

const REQUEST = { byName: 3, bySymbol: 4, byExtension: 5, extensionsOf: 6, listServices: 7 }
const RESPONSE = { host: 1, request: 2, files: 4, extensions: 5, services: 6, error: 7 }

/** `services`: those that this node serves, besides reflection itself. */
export function reflectionMethods(services: readonly string[]): Method[] {
  const listed = [...services, ...REFLECTION_SERVICES].sort()
  return REFLECTION_SERVICES.map((service) => ({
    kind: 'stream',
    path: `/${service}/ServerReflectionInfo`,
    open: (_call, output) => ({
      message: (message) => (output.write(answer(message, listed)) ? undefined : output.drained()),
      end: () => output.end(),
      cancel: () => {},
    }),
  }))
}

type Asked = { readonly host: string; readonly field: number; readonly name: string }

function readRequest(message: Uint8Array): Asked {
  const reader = new ProtobufReader(message)
  let host = ''
  let field = 0
  let name = ''
  for (let next = reader.next(); next !== 0; next = reader.next()) {
    if (next === 1) host = reader.string()
    else if (next === REQUEST.byExtension) {
      field = next
      reader.skip()
    } else if (next >= REQUEST.byName && next <= REQUEST.listServices) {
      field = next
      name = reader.string()
    } else reader.skip()
  }
  return { host, field, name }
}

function answer(message: Uint8Array, services: readonly string[]): Uint8Array {
  const { host, field, name } = readRequest(message)
  const writer = new ProtobufWriter().string(RESPONSE.host, host).bytes(RESPONSE.request, message, true)
  if (field === REQUEST.listServices) return writeServices(writer, services).finish()
  if (field === REQUEST.byName) return writeFiles(writer, FILES.get(name), `file ${name}`).finish()
  if (field === REQUEST.bySymbol) return writeFiles(writer, FILE_OF_SYMBOL.get(name), `symbol ${name}`).finish()
  if (field === REQUEST.byExtension) return writeFiles(writer, undefined, 'extension').finish()
  if (field === REQUEST.extensionsOf) return writeExtensions(writer, name).finish()
  return writeError(writer, GRPC_STATUS.invalid_argument, 'message_request: set one of its fields').finish()
}

const FILES: ReadonlyMap<string, ProtoFile> = new Map(PROTO_FILES.map((file) => [file.name, file]))
const FILE_OF_SYMBOL: ReadonlyMap<string, ProtoFile> = new Map(
  PROTO_FILES.flatMap((file) => file.symbols.map((symbol) => [symbol, file] as const)),
)

function writeServices(writer: ProtobufWriter, services: readonly string[]): ProtobufWriter {
  return writer.message(RESPONSE.services, (list) => {
    for (const service of services) list.message(1, (nested) => nested.string(1, service))
  })
}

/** Writes a file and all that it imports. */
function writeFiles(writer: ProtobufWriter, file: ProtoFile | undefined, sought: string): ProtobufWriter {
  if (file === undefined) return writeError(writer, GRPC_STATUS.not_found, `unknown ${sought.slice(0, 200)}`)
  return writer.message(RESPONSE.files, (list) => {
    for (const { descriptor } of withImports(file)) list.bytes(1, Buffer.from(descriptor, 'base64'))
  })
}

function withImports(file: ProtoFile, seen: Set<ProtoFile> = new Set()): Set<ProtoFile> {
  if (seen.has(file)) return seen
  seen.add(file)
  for (const name of file.imports) {
    const imported = FILES.get(name)
    if (imported !== undefined) withImports(imported, seen)
  }
  return seen
}

/** No message of this node has extensions. */
function writeExtensions(writer: ProtobufWriter, type: string): ProtobufWriter {
  if (!FILE_OF_SYMBOL.has(type)) return writeError(writer, GRPC_STATUS.not_found, `unknown type ${type.slice(0, 200)}`)
  return writer.message(RESPONSE.extensions, (nested) => nested.string(1, type))
}

function writeError(writer: ProtobufWriter, code: number, message: string): ProtobufWriter {
  return writer.message(RESPONSE.error, (nested) => nested.uint(1, code).string(2, message))
}
