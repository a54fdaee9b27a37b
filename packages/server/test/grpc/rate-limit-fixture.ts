// Envoy's rate limit service without a listener: bytes in, bytes out, on a memory store with a fake clock.

import { createLimiter, type Limiter, memoryStore, type Store } from 'sluice'
import { type FakeClock, fakeClock } from 'sluice/testing'
import { onTestFinished } from 'vitest'
import { ANONYMOUS_CALLER } from '../../src/access/authenticator.ts'
import { readConfig } from '../../src/envoy/config-reader.ts'
import { DescriptorTree } from '../../src/envoy/descriptor-tree.ts'
import {
  createRateLimitService,
  type DecideRateLimit,
  type RateLimitOptions,
} from '../../src/envoy/rate-limit-service.ts'
import { RuleDomains } from '../../src/envoy/rule-domains.ts'
import { shouldRateLimit } from '../../src/grpc/envoy/should-rate-limit.ts'
import type { Call, UnaryMethod } from '../../src/grpc/method.ts'
import { ProtobufReader, ProtobufWriter } from '../../src/grpc/protobuf.ts'
import { CallCounts, servedMethod } from '../../src/grpc/served-method.ts'
import { rateLimitOptions } from '../../src/service/open-envoy.ts'
import { defaultSettings } from '../../src/settings/default-settings.ts'

/** Entries as `key=value`; an object adds a limit or hits. */
export type DescriptorText =
  | readonly string[]
  | { readonly entries: readonly string[]; readonly hits?: number; readonly limit?: readonly [number, number] }

export type ReadStatus = {
  readonly code: number
  readonly limit?: { readonly requests: number; readonly unit: number; readonly name: string }
  readonly remaining: number
  readonly reset?: number
}

export type ReadResponse = {
  readonly code: number
  readonly statuses: readonly ReadStatus[]
  readonly headers: Readonly<Record<string, string>>
  /** The bytes of dynamic metadata. */
  readonly metadata: Buffer | undefined
}

export function requestBytes(domain: string, descriptors: readonly DescriptorText[], hits = 0): Uint8Array {
  const writer = new ProtobufWriter().string(1, domain)
  for (const one of descriptors) {
    const { entries, hits: own, limit } = isList(one) ? { entries: one, hits: undefined, limit: undefined } : one
    writer.message(2, (descriptor) => {
      for (const entry of entries) {
        const at = entry.indexOf('=')
        descriptor.message(1, (nested) => {
          nested.string(1, entry.slice(0, at)).string(2, entry.slice(at + 1))
        })
      }
      if (limit !== undefined) descriptor.message(2, (nested) => void nested.uint(1, limit[0]).uint(2, limit[1]))
      if (own !== undefined) descriptor.message(3, (nested) => void nested.uint(1, own))
    })
  }
  return writer.uint(3, hits).finish()
}

/** Array.isArray does not narrow readonly arrays. */
function isList(one: DescriptorText): one is readonly string[] {
  return Array.isArray(one)
}

export function readResponse(bytes: Uint8Array): ReadResponse {
  const reader = new ProtobufReader(bytes)
  let code = 0
  let metadata: Buffer | undefined
  const statuses: ReadStatus[] = []
  const headers: Record<string, string> = {}
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) code = reader.uint()
    else if (field === 2) statuses.push(statusIn(reader.message()))
    else if (field === 3) {
      const header = fieldsOf(reader.message())
      headers[String(header[1])] = String(header[2])
    } else if (field === 6) metadata = Buffer.from(reader.bytes())
    else reader.skip()
  }
  return { code, statuses, headers, metadata }
}

function statusIn(reader: ProtobufReader): ReadStatus {
  const status: { -readonly [K in keyof ReadStatus]: ReadStatus[K] } = { code: 0, remaining: 0 }
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) status.code = reader.uint()
    else if (field === 2) {
      const limit = fieldsOf(reader.message(), [3])
      status.limit = { requests: Number(limit[1] ?? 0), unit: Number(limit[2] ?? 0), name: String(limit[3] ?? '') }
    } else if (field === 3) status.remaining = reader.uint()
    else if (field === 4) status.reset = Number(fieldsOf(reader.message(), [])[1] ?? 0)
    else reader.skip()
  }
  return status
}

function fieldsOf(reader: ProtobufReader, texts: readonly number[] = [1, 2]): Record<number, string | number> {
  const fields: Record<number, string | number> = {}
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    fields[field] = texts.includes(field) ? reader.string() : reader.uint()
  }
  return fields
}

export type RateLimits = {
  readonly clock: FakeClock
  readonly limiter: Limiter
  readonly decide: DecideRateLimit
  ask(domain: string, descriptors: readonly DescriptorText[], hits?: number): Promise<ReadResponse>
  send(message: Uint8Array): Promise<ReadResponse>
  readonly recorded: string[]
}

type Options = Partial<RateLimitOptions> & {
  readonly rules?: unknown
  readonly store?: (clock: FakeClock) => Store
  /** `grpc-timeout` of the calls. */
  readonly timeoutMs?: number
  /** Values of --envoy-domain. Default: every domain. */
  readonly ruleDomains?: readonly string[]
}

const DEFAULTS = rateLimitOptions(defaultSettings())

export const CALL: Call = {
  path: '',
  metadata: () => undefined,
  timeoutMs: undefined,
  peer: { address: '127.0.0.1', certificateSubject: undefined },
}

/** A configuration in YAML, one text per domain. */
export function rateLimits(configs: readonly string[], options: Options = {}): RateLimits {
  const clock = fakeClock()
  const store = options.store?.(clock) ?? memoryStore({ clock })
  const limiter = createLimiter({ rules: (options.rules ?? []) as [], store, clock })
  onTestFinished(() => limiter.close())
  const domains = new Map(configs.map(domainOf))
  const recorded: string[] = []
  const decide = createRateLimitService({
    store,
    limiter,
    checks: {
      check: (subject) => limiter.decide(subject),
      record: (_subject, { ruleId, allowed }) => void recorded.push(`${ruleId} ${allowed}`),
      answer: () => '',
      checkBody: () => {
        throw new Error('not used')
      },
    },
    config: () => ({ domains }),
    ruleDomains: new RuleDomains(limiter, options.ruleDomains ?? ['*'], { event: () => {} }),
    newId: () => 'id',
    options: { ...DEFAULTS, ...options },
  })
  const method = servedMethod(
    shouldRateLimit(decide, { require: () => ({ id: '', role: undefined }) }),
    new CallCounts(),
  ) as UnaryMethod
  const call: Call = { ...CALL, timeoutMs: options.timeoutMs }
  const send = async (message: Uint8Array) => readResponse(await method.handle(message, call, ANONYMOUS_CALLER))
  return {
    clock,
    limiter,
    decide,
    recorded,
    send,
    ask: (domain, descriptors, hits) => send(requestBytes(domain, descriptors, hits)),
  }
}

function domainOf(text: string): [string, DescriptorTree] {
  const { domain, findings } = readConfig(text)
  if (domain === undefined) throw new Error(JSON.stringify(findings))
  return [domain.domain, new DescriptorTree(domain)]
}
