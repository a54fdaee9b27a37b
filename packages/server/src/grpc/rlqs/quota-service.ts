// envoy.service.rate_limit_quota.v3.RateLimitQuotaService: Envoy reports usage and decides by itself; this service
// assigns shares of its buckets. Respects how Envoy 1.40 departs from its documents: docs/guides/envoy-quotas.md.

import { inSlices, type Limiter, mapped, type Sliced, type Subject } from 'sluice'
import { nativeSubject } from '../../envoy/native-subject.ts'
import type { RemoteFacts } from '../../metrics/grpc-metrics.ts'
import { type Call, GrpcError, type Method, type StreamInput, type StreamOutput } from '../method.ts'
import { ProtobufError } from '../protobuf.ts'
import { BucketAccount } from './bucket-account.ts'
import { type Action, type BucketId, type Report, readReport, type Usage, writeActions } from './messages.ts'
import { LEASE_SECONDS } from './share.ts'

export type QuotaDeps = {
  readonly limiter: Pick<Limiter, 'check' | 'give'>
  /** Throws GrpcError unless the call may check. Returns whether it still may: tokens expire and are revoked. */
  authorize(call: Call): () => boolean
  /** Monotonic time. */
  nowMs(): number
}

export type QuotaService = {
  readonly method: Method
  /** Assigns shares to buckets that wait for units, without being asked. */
  tick(): Promise<void>
  facts(): Pick<RemoteFacts, 'quotaStreams' | 'quotaBuckets' | 'quotaRequests' | 'quotaAssignments'>
  close(): void
}

const PATH = '/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas'
/** Buckets of one Envoy; each is a few hundred bytes. */
const BUCKETS_MAX = 10_000
/** Envoy forgets a bucket that is not used for this time; its next request subscribes again. */
const IDLE_MS = 120_000
const TICK_MS = 1000
/** Time for which the buckets of a report may block the event loop. */
const SLICE_MS = 5

export function createQuotaService(deps: QuotaDeps, tickMs: number = TICK_MS): QuotaService {
  const streams = new Set<QuotaStream>()
  const counts: QuotaCounts = { requests: { allowed: 0, denied: 0 }, assignments: { share: 0, allow: 0, deny: 0 } }
  const tick = async () => {
    await Promise.all([...streams].map((stream) => stream.tick()))
  }
  let timer: NodeJS.Timeout | undefined
  const tickLater = () => {
    timer = setTimeout(() => {
      tickLater()
      void tick().catch(() => {}) // the next tick tries again
    }, tickMs).unref()
  }
  if (tickMs > 0) tickLater()
  return {
    method: {
      kind: 'stream',
      path: PATH,
      open: (call, output) => {
        const isStillValid = deps.authorize(call)
        const stream = new QuotaStream(deps, output, counts, isStillValid, () => streams.delete(stream))
        streams.add(stream)
        return stream
      },
    },
    tick,
    facts: () => ({
      quotaStreams: streams.size,
      quotaBuckets: [...streams].reduce((sum, { size }) => sum + size, 0),
      quotaRequests: counts.requests,
      quotaAssignments: counts.assignments,
    }),
    close: () => {
      clearTimeout(timer)
      for (const stream of streams) stream.close()
    },
  }
}

type QuotaCounts = {
  readonly requests: { allowed: number; denied: number }
  readonly assignments: { share: number; allow: number; deny: number }
}

type Bucket = { readonly id: BucketId; readonly account: BucketAccount; assigning: Promise<void> | undefined }

/** One Envoy. When its stream ends, the units of its shares stay taken: Envoy uses them until its leases end. */
class QuotaStream implements StreamInput {
  readonly #deps: QuotaDeps
  readonly #output: StreamOutput
  readonly #counts: QuotaCounts
  readonly #isStillValid: () => boolean
  readonly #onEnd: () => void
  readonly #buckets = new Map<string, Bucket>()
  #domain = ''
  #ended = false

  constructor(
    deps: QuotaDeps,
    output: StreamOutput,
    counts: QuotaCounts,
    isStillValid: () => boolean,
    onEnd: () => void,
  ) {
    this.#deps = deps
    this.#output = output
    this.#counts = counts
    this.#isStillValid = isStillValid
    this.#onEnd = onEnd
  }

  get size(): number {
    return this.#buckets.size
  }

  async message(message: Uint8Array): Promise<void> {
    let report: Report
    try {
      report = await inSlices(readReport(Buffer.from(message)), SLICE_MS)
    } catch (error) {
      if (!(error instanceof ProtobufError)) throw error
      this.#fail(new GrpcError('invalid_argument', `RateLimitQuotaUsageReports: ${error.message}`))
      return
    }
    if (report.domain !== '') this.#domain = report.domain // only the first message has to name it
    if (this.#domain === '') {
      this.#fail(new GrpcError('invalid_argument', 'domain: name it in the first report'))
      return
    }
    const buckets = await inSlices(this.#reported(report.usages), SLICE_MS)
    if (buckets !== undefined) await this.#assign(buckets, false)
  }

  end(): void {
    this.close()
  }

  cancel(): void {
    this.#ended = true
    this.#onEnd()
  }

  close(): void {
    if (this.#ended) return
    this.#ended = true
    this.#output.end()
    this.#onEnd()
  }

  /** Assigns shares to denied buckets whose units may have refilled; abandons idle buckets. */
  async tick(): Promise<void> {
    if (!this.#isStillValid()) {
      this.#fail(new GrpcError('unauthenticated', 'the token of this stream was revoked or has expired'))
      return
    }
    const nowMs = this.#deps.nowMs()
    const waiting = [...this.#buckets.values()].filter(({ account }) => account.isWaiting(nowMs))
    if (waiting.length > 0) await this.#assign(waiting, true)
    const idle: Action[] = []
    for (const [name, { id, account }] of this.#buckets) {
      if (nowMs - account.usedMs < IDLE_MS) continue
      this.#buckets.delete(name)
      idle.push({ bucketId: id, abandon: true })
    }
    this.#send(idle)
  }

  /** The buckets of the report, each once. Undefined: too many, the stream has ended. */
  *#reported(usages: readonly Usage[]): Sliced<Bucket[] | undefined> {
    const nowMs = this.#deps.nowMs()
    const buckets = new Set<Bucket>()
    for (const { bucketId, allowed, denied } of usages) {
      const name = JSON.stringify(Object.entries(bucketId).sort(([a], [b]) => (a < b ? -1 : 1)))
      let bucket = this.#buckets.get(name)
      if (bucket === undefined) {
        if (this.#buckets.size >= BUCKETS_MAX) {
          this.#fail(new GrpcError('resource_exhausted', `use at most ${BUCKETS_MAX} buckets per Envoy`))
          return undefined
        }
        const account = new BucketAccount(this.#deps.limiter, this.#subjectOf(bucketId), nowMs)
        bucket = { id: bucketId, account, assigning: undefined }
        this.#buckets.set(name, bucket)
      }
      this.#counts.requests.allowed += allowed
      this.#counts.requests.denied += denied
      bucket.account.reported(allowed, denied, nowMs)
      buckets.add(bucket)
      yield
    }
    return [...buckets]
  }

  /** The same facts as descriptors of the rate limit service. */
  #subjectOf(bucketId: BucketId): Subject {
    const entries = Object.entries(bucketId).map(([key, value]) => ({ key, value }))
    return nativeSubject(this.#domain, entries, undefined)
  }

  /** `onlyGrants`: leaves out buckets that are still denied. A bucket is assigned by one call at a time. */
  async #assign(buckets: readonly Bucket[], onlyGrants: boolean): Promise<void> {
    const actions: Action[] = []
    const start = mapped(buckets, async (bucket) => {
      while (bucket.assigning !== undefined) await bucket.assigning // without one, it starts within its slice
      const work = bucket.account.assign(this.#deps.nowMs()).then((strategy) => {
        const kind = 'blanket' in strategy ? strategy.blanket : 'share'
        if (onlyGrants && kind === 'deny') return
        this.#counts.assignments[kind] += 1
        actions.push({ bucketId: bucket.id, strategy, ttlSeconds: LEASE_SECONDS })
      })
      // Errs low: without an assignment, Envoy applies the one that it has, to its end.
      bucket.assigning = work
        .catch(() => {})
        .finally(() => {
          bucket.assigning = undefined
        })
      await bucket.assigning
    })
    await Promise.all(await inSlices(start, SLICE_MS))
    this.#send(actions)
  }

  #send(actions: readonly Action[]): void {
    if (actions.length > 0 && !this.#ended) this.#output.write(writeActions(actions))
  }

  #fail(error: GrpcError): void {
    this.#ended = true
    this.#output.fail(error)
    this.#onEnd()
  }
}
