// Replays recorded requests in a thread of the browser, with the same engine as the service.

import { createLimiter, type Decision, type Limiter, memoryStore } from 'sluice'
import { type RecordedCheck, type RecordedRequest, replay, seenFacts } from 'sluice/replay'
import type { PlainRule } from '../rule-text.ts'
import { readLog } from './log-file.ts'
import { downsampled } from './profile-points.ts'
import type { Matched, Matches, Profile, Question, Recording, Reply, Tasks } from './protocol.ts'

const NEWEST = 50
/** A limit that no key reaches. */
const UNREACHED = 10_000_000

let recording: Recording = {
  requests: [],
  sample_rate: 1,
  recording: { recorded: 0, truncated: false },
}

type OnProgress = (share: number) => void

const TASKS: { readonly [Name in keyof Tasks]: (ask: Tasks[Name]['ask'], onProgress: OnProgress) => unknown } = {
  load: (ask) => {
    recording = ask
    return { requests: ask.requests.length }
  },
  // As the command `sluice rules simulate --log` replays it: all rules, whatever the layer of this node.
  open: async (file, onProgress) => {
    const { requests, summary } = await readLog(file, onProgress)
    recording = { requests, sample_rate: 1, recording: { recorded: requests.length, truncated: false } }
    return summary
  },
  simulate: ({ rules, against }) => {
    const { requests, sample_rate: rate, options } = recording
    const seen = seenFacts(requests)
    seen.lost = recording.recording.lost ?? 0
    return replay(requests, {
      ...{ rules, against, sample: { rate, seen } },
      ...{ layer: options?.layer ?? undefined, ipv6Prefix: options?.ipv6_prefix ?? undefined },
    })
  },
  match: ({ rule }) => matches(rule),
  profile: ({ rule, windowSeconds }) => profile(rule, windowSeconds),
}

addEventListener('message', async ({ data: { id, task, ask } }: MessageEvent<Question>) => {
  let reply: Reply
  try {
    const onProgress = (progress: number) => postMessage({ id, progress } satisfies Reply)
    reply = { id, answer: await TASKS[task](ask as never, onProgress) } // the page asks with the type of the task
  } catch (error) {
    reply = { id, error: error instanceof Error ? error.message.replace(/^\[\w+\] /, '') : String(error) }
  }
  postMessage(reply)
})

/** One rule on a memory store, driven by the times of the requests. */
function only(rule: PlainRule): { limiter: Limiter; decide: (request: RecordedCheck) => Decision | undefined } {
  let nowUs = 0
  const clock = { nowUs: () => nowUs }
  const named = [String(rule.store ?? 'default')]
  const store = Object.assign(memoryStore({ clock }), { named, refusesSpread: () => undefined })
  const { layer, ipv6_prefix: prefix } = recording.options ?? {}
  const limiter = createLimiter({
    ...{ rules: [rule as never], store, clock }, // parsed, and refused if it is not a rule
    ...(layer != null && { layer }),
    ...(prefix != null && { ipv6Prefix: prefix }),
  })
  const decide = ({ atUs, subject, requestId }: RecordedCheck) => {
    nowUs = Math.max(nowUs, atUs)
    try {
      return limiter.checkSync(subject, requestId) as Decision // the memory store is synchronous
    } catch {
      return undefined // a malformed request
    }
  }
  return { limiter, decide }
}

function matches(rule: PlainRule): Matches {
  const { decide } = only({ ...rule, enabled: true })
  const clients = new Set<string>()
  const found: Matched[] = []
  const checks = recording.requests.filter(isCheck)
  for (const request of checks) {
    const outcome = decide(request)?.outcomes[0]
    if (outcome === undefined) continue
    const { user, apiKey, ip, method, path } = request.subject
    const client = user ?? apiKey ?? ip ?? ''
    clients.add(client)
    found.push({ atMs: request.atUs / 1000, client, method, path, refused: !outcome.allowed })
  }
  const refused = found.filter((one) => one.refused).length
  const newest = found.slice(-NEWEST).reverse()
  return { total: checks.length, matched: found.length, refused, clients: clients.size, newest }
}

/** Counts with a fixed window that refuses nothing: what it has used is the count of the key. */
function profile(rule: PlainRule, windowSeconds: number): Profile {
  const { burst: _burst, limits: _limits, by_plan: _plans, lease: _lease, approximate: _terms, ...kept } = rule
  const counting = { algorithm: 'fixed_window', limit: UNREACHED, window_seconds: windowSeconds }
  const { decide } = only({ ...kept, ...counting, consistency: 'strict', shards: 1, enabled: true })
  const busiest = new Map<number, number>()
  for (const request of recording.requests.filter(isCheck)) {
    const outcome = decide(request)?.outcomes[0]
    if (outcome === undefined) continue
    const window = Math.floor(request.atUs / 1_000_000 / windowSeconds)
    busiest.set(window, Math.max(busiest.get(window) ?? 0, UNREACHED - outcome.remaining))
  }
  return { points: downsampled(busiest, windowSeconds) }
}

function isCheck(request: RecordedRequest): request is RecordedCheck {
  return request.kind === 'check'
}
