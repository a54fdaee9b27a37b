// envoy.service.rate_limit_quota.v3.RateLimitQuotaService: Envoy reports usage and decides by itself; this service
// assigns shares of its buckets. Respects how Envoy 1.40 departs from its documents: docs/guides/envoy-quotas.md.

import { inSlices, mapped, type Sliced } from 'sluice'
import { nativeSubject } from '../../envoy/native-subject.ts'
import type { RemoteFacts } from '../../metrics/grpc-metrics.ts'
import { type Call, GrpcError, type Method, type StreamInput, type StreamOutput } from '../method.ts'
import { ProtobufError } from '../protobuf.ts'
import {
  type Action,
  type BucketId,
  type Report,
  readReport,
  type Strategy,
  type Usage,
  writeActions,
} from './messages.ts'
import { type Payments, QuotaBucket } from './quota-bucket.ts'
import { LEASE_SECONDS, Share } from './share.ts'

export type QuotaDeps = {
  readonly limiter: Payments
  /** Throws GrpcError unless the call may check. Returns whether it still may: tokens expire and are revoked. */
  authorize(call: Call): () => boolean
  /** Monotonic time. */
  nowMs(): number
  /** Nodes of the service on one store. Default: 1. */
  readonly nodes?: number | undefined
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
/** Envoy forgets a bucket that is not used for this time: its next request subscribes again, and gets a new share. */
const IDLE_MS = 20_000
const TICK_MS = 1000
/** Time for which the buckets of a report may block the event loop. */
const SLICE_MS = 5

export function createQuotaService(deps: QuotaDeps, tickMs: number = TICK_MS): QuotaService {
  const buckets = new Map<string, QuotaBucket>()
  const streams = new Set<QuotaStream>()
  const counts: QuotaCounts = { requests: { allowed: 0, denied: 0 }, assignments: { share: 0, allow: 0, deny: 0 } }
  const tick = async () => {
    const streamOf = new Map<Share, QuotaStream>()
    for (const stream of streams) for (const share of stream.tick()) streamOf.set(share, stream)
    const serve = async ([name, bucket]: [string, QuotaBucket]) => {
      const due = bucket.due(deps.nowMs())
      if (due.length === 0 && bucket.isUnused) buckets.delete(name)
      if (due.length === 0) return
      for (const [share, strategies] of await bucket.serve(due, deps.nowMs)) {
        streamOf.get(share)?.assign([{ bucket, strategies }])
      }
    }
    await Promise.all(await inSlices(mapped([...buckets], serve), SLICE_MS))
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
        const stream = new QuotaStream({ ...deps, buckets, counts }, output, isStillValid, () => streams.delete(stream))
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

type StreamDeps = QuotaDeps & { readonly buckets: Map<string, QuotaBucket>; readonly counts: QuotaCounts }

type Assigned = { readonly bucket: QuotaBucket; readonly strategies: readonly Strategy[] }

/** One Envoy. When its stream ends, the units of its shares stay taken: Envoy uses them until its leases end. */
class QuotaStream implements StreamInput {
  readonly #deps: StreamDeps
  readonly #output: StreamOutput
  readonly #isStillValid: () => boolean
  readonly #onEnd: () => void
  readonly #shares = new Map<QuotaBucket, Share>()
  #domain = ''
  #ended = false

  constructor(deps: StreamDeps, output: StreamOutput, isStillValid: () => boolean, onEnd: () => void) {
    this.#deps = deps
    this.#output = output
    this.#isStillValid = isStillValid
    this.#onEnd = onEnd
  }

  get size(): number {
    return this.#shares.size
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
    const reported = await inSlices(this.#reported(report.usages), SLICE_MS)
    if (this.#ended) return
    const assigned: Assigned[] = []
    const serve = async (bucket: QuotaBucket, share: Share) => {
      const strategies = (await bucket.serve([share], this.#deps.nowMs)).get(share) ?? []
      assigned.push({ bucket, strategies })
    }
    // Errs low: without an assignment, Envoy applies the one that it has, to its end.
    const start = mapped([...reported], ([bucket, share]) => serve(bucket, share).catch(() => {}))
    await Promise.all(await inSlices(start, SLICE_MS))
    this.assign(assigned)
  }

  end(): void {
    this.close()
  }

  cancel(): void {
    this.#end()
  }

  close(): void {
    if (this.#ended) return
    this.#output.end()
    this.#end()
  }

  /** Abandons idle buckets. Returns the shares that may be assigned more. */
  tick(): Iterable<Share> {
    if (!this.#isStillValid()) {
      this.#fail(new GrpcError('unauthenticated', 'the token of this stream was revoked or has expired'))
      return []
    }
    const nowMs = this.#deps.nowMs()
    const idle: Action[] = []
    for (const [bucket, share] of this.#shares) {
      if (nowMs - share.usedMs < IDLE_MS || !share.isForgettable) continue
      this.#shares.delete(bucket)
      void bucket.abandon(share)
      idle.push({ bucketId: bucket.id, abandon: true })
    }
    this.#send(idle)
    return this.#shares.values()
  }

  assign(assigned: readonly Assigned[]): void {
    const actions: Action[] = []
    for (const { bucket, strategies } of assigned) {
      const last = strategies.at(-1)
      if (last === undefined) continue
      this.#deps.counts.assignments['blanket' in last ? last.blanket : 'share'] += 1
      for (const strategy of strategies) actions.push({ bucketId: bucket.id, strategy, ttlSeconds: LEASE_SECONDS })
    }
    this.#send(actions)
  }

  /** The buckets of the report, each once. Ends the stream if they are too many. */
  *#reported(usages: readonly Usage[]): Sliced<Map<QuotaBucket, Share>> {
    const nowMs = this.#deps.nowMs()
    const reported = new Map<QuotaBucket, Share>()
    const { counts } = this.#deps
    for (const { bucketId, allowed, denied } of usages) {
      const bucket = this.#bucketOf(bucketId)
      let share = this.#shares.get(bucket)
      if (share === undefined) {
        if (this.#shares.size >= BUCKETS_MAX) {
          this.#fail(new GrpcError('resource_exhausted', `use at most ${BUCKETS_MAX} buckets per Envoy`))
          return reported
        }
        share = new Share(nowMs)
        this.#shares.set(bucket, share)
        bucket.add(share)
      }
      counts.requests.allowed += allowed
      counts.requests.denied += denied
      share.reported(allowed, denied, nowMs)
      reported.set(bucket, share)
      yield
    }
    return reported
  }

  #bucketOf(id: BucketId): QuotaBucket {
    const entries = Object.entries(id).sort(([a], [b]) => (a < b ? -1 : 1))
    const name = JSON.stringify([this.#domain, entries])
    const { buckets, limiter, nodes = 1 } = this.#deps
    let bucket = buckets.get(name)
    if (bucket === undefined) {
      // The same facts as descriptors of the rate limit service.
      const facts = entries.map(([key, value]) => ({ key, value }))
      bucket = new QuotaBucket(limiter, nativeSubject(this.#domain, facts, undefined), id, nodes)
      buckets.set(name, bucket)
    }
    return bucket
  }

  #send(actions: readonly Action[]): void {
    if (actions.length > 0 && !this.#ended) this.#output.write(writeActions(actions))
  }

  #fail(error: GrpcError): void {
    this.#output.fail(error)
    this.#end()
  }

  #end(): void {
    this.#ended = true
    for (const [bucket, share] of this.#shares) bucket.end(share)
    this.#onEnd()
  }
}
