// One call of CheckStream: decides checks in the order of their arrival, and answers each as soon as it is known. A
// check that cannot be decided gets an error in its answer; the stream continues.

import { isPromise, type MaybePromise } from 'sluice'
import type { Caller } from '../../access/roles.ts'
import { GrpcError, type StreamInput, type StreamOutput } from '../method.ts'
import { ProtobufError, ProtobufReader, ProtobufWriter } from '../protobuf.ts'
import { type CheckFields, readCheck } from './check-request.ts'

/** Cap on checks of one stream that wait for the store: the next message is read when there is room. */
const PENDING_MAX = 1000
/** Interval at which a stream verifies its token. */
const VERIFY_MS = 1000

export type CheckStreamDeps = {
  readonly caller: Caller
  /** Whether the token of the stream is still valid. */
  isStillValid(): boolean
  /** Writes the answer or error of a check to the writer: fields 2 or 3. Never throws. */
  check(fields: CheckFields, caller: Caller, writer: ProtobufWriter): MaybePromise<void>
}

export class CheckStream implements StreamInput {
  readonly #deps: CheckStreamDeps
  readonly #output: StreamOutput
  readonly #onOver: (stream: CheckStream) => void
  #pending = 0
  #isEnded = false
  #closing: GrpcError | undefined
  #isOver = false
  #verifiedMs = performance.now()
  /** Resolves when there is room for the next check. */
  #room: (() => void) | undefined

  constructor(deps: CheckStreamDeps, output: StreamOutput, onOver: (stream: CheckStream) => void) {
    this.#deps = deps
    this.#output = output
    this.#onOver = onOver
  }

  message(message: Uint8Array): MaybePromise<void> {
    if (this.#closing !== undefined) return
    this.#verify()
    const { id, fields } = readMessage(message)
    const writer = new ProtobufWriter().uint64(1, id)
    const answered = this.#deps.check(fields, this.#deps.caller, writer)
    if (!isPromise(answered)) return this.#write(writer) ? undefined : this.#output.drained()
    this.#pending += 1
    answered.then(() => this.#answered(writer))
    return this.#pending < PENDING_MAX ? undefined : this.#waitForRoom()
  }

  end(): void {
    this.#isEnded = true
    this.#endIfDone()
  }

  cancel(): void {
    this.#over()
  }

  /** Answers the checks that it has read, then ends with this error. */
  close(error: GrpcError): void {
    this.#closing = error
    this.#endIfDone()
  }

  #answered(writer: ProtobufWriter): void {
    this.#pending -= 1
    const hasRoom = this.#write(writer)
    const room = this.#room
    this.#room = undefined
    if (room !== undefined) {
      if (hasRoom) room()
      else this.#output.drained().then(room)
    }
    this.#endIfDone()
  }

  #write(writer: ProtobufWriter): boolean {
    return this.#isOver || this.#output.write(writer.finish())
  }

  #waitForRoom(): Promise<void> {
    return new Promise((resolve) => {
      this.#room = resolve
    })
  }

  #endIfDone(): void {
    if (this.#isOver || this.#pending > 0) return
    if (this.#closing !== undefined) {
      this.#over()
      this.#output.fail(this.#closing)
    } else if (this.#isEnded) {
      this.#over()
      this.#output.end()
    }
  }

  #over(): void {
    this.#isOver = true
    this.#onOver(this)
  }

  /** Tokens expire and are revoked during a stream. */
  #verify(): void {
    const nowMs = performance.now()
    if (nowMs - this.#verifiedMs < VERIFY_MS) return
    this.#verifiedMs = nowMs
    if (this.#deps.isStillValid()) return
    this.#over()
    throw new GrpcError('unauthenticated', 'the token of this stream was revoked or has expired')
  }
}

function readMessage(message: Uint8Array): { id: number | bigint; fields: CheckFields } {
  const reader = new ProtobufReader(message)
  let id: number | bigint = 0
  let fields: CheckFields | undefined
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) id = reader.uint64()
    else if (field === 2) fields = readCheck(reader.message())
    else reader.skip()
  }
  if (fields === undefined) throw new ProtobufError('check: this field is missing')
  return { id, fields }
}
