// grpc.health.v1.Health: SERVING until the node drains. A degraded node still serves: `on_fail` decides meanwhile.
// Needs no token, as /readyz.

import { GrpcError, type Method, type StreamOutput } from '../method.ts'
import { ProtobufReader, ProtobufWriter } from '../protobuf.ts'

export const HEALTH_SERVICE = 'grpc.health.v1.Health'
const STATUS = { serving: 1, notServing: 2, serviceUnknown: 3 } as const
type ServingStatus = (typeof STATUS)[keyof typeof STATUS]

/** Health of a node, and the calls that watch it. */
export class GrpcHealth {
  /** The whole node (empty name) and each service. */
  readonly #services: ReadonlySet<string>
  readonly #watches = new Map<StreamOutput, string>()
  #isServing = true

  constructor(services: readonly string[]) {
    this.#services = new Set(['', ...services])
  }

  methods(): Method[] {
    return [
      { kind: 'unary', path: `/${HEALTH_SERVICE}/Check`, handle: (message) => this.#check(serviceIn(message)) },
      {
        kind: 'stream',
        path: `/${HEALTH_SERVICE}/Watch`,
        open: (_call, output) => ({
          message: (message) => this.#watch(serviceIn(message), output),
          end: () => {},
          cancel: () => void this.#watches.delete(output),
        }),
      },
    ]
  }

  /** Every service is NOT_SERVING from now on. */
  drain(): void {
    this.#isServing = false
    for (const [output, service] of this.#watches) output.write(this.#answer(service))
  }

  /** Ends all watches, which would otherwise delay the close. */
  close(): void {
    for (const output of this.#watches.keys()) output.fail(new GrpcError('unavailable', 'this node is shutting down'))
    this.#watches.clear()
  }

  #check(service: string): Uint8Array {
    if (this.#services.has(service)) return this.#answer(service)
    throw new GrpcError('not_found', `service: unknown service ${JSON.stringify(service.slice(0, 200))}`)
  }

  #watch(service: string, output: StreamOutput): void {
    if (this.#watches.has(output)) throw new GrpcError('unimplemented', 'this method takes exactly one message')
    this.#watches.set(output, service)
    output.write(this.#answer(service))
  }

  #answer(service: string): Uint8Array {
    return new ProtobufWriter().uint(1, this.#statusOf(service)).finish()
  }

  #statusOf(service: string): ServingStatus {
    if (!this.#services.has(service)) return STATUS.serviceUnknown
    return this.#isServing ? STATUS.serving : STATUS.notServing
  }
}

function serviceIn(message: Uint8Array): string {
  const reader = new ProtobufReader(message)
  let service = ''
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) service = reader.string()
    else reader.skip()
  }
  return service
}
