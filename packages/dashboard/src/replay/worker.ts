// Replays recorded requests in a thread of the browser, with the same engine as the service.

import { createLimiter, type Decision, type Limiter, memoryStore } from 'sluice'
import { type RecordedCheck, type RecordedRequest, replay, type SeenFacts, seenFacts } from 'sluice/replay'
import type { PlainRule } from '../rule-text.ts'
import { readLog } from './log-file.ts'
import { downsampled } from './profile-points.ts'
import type { Matched, Matches, Profile, Question, Recording, Reply, Tasks } from './protocol.ts'
import { fetchRecording, periodOf, ServiceProblem } from './recording.ts'

const NEWEST = 50
/** A limit that no key reaches. */
const UNREACHED = 10_000_000

const NOTHING: Recording = { requests: [], sample_rate: 1, recording: { recorded: 0, truncated: false } }

let events = NOTHING
/** The URL that was asked for last. */
let wantedUrl = ''
let log: Recording | undefined
/** Facts of the requests in use: computed once, because dragging replays them many times. */
let seen: { readonly of: Recording; readonly facts: SeenFacts } | undefined

function recorded(): Recording {
  return log ?? events
}

type OnProgress = (share: number) => void

const TASKS: { readonly [Name in keyof Tasks]: (ask: Tasks[Name]['ask'], onProgress: OnProgress) => unknown } = {
  record: async (url, onProgress) => {
    wantedUrl = url
    const read = await fetchRecording(url, onProgress)
    if (wantedUrl === url) events = read
    const { truncated, lost = 0 } = read.recording
    return { requests: read.requests.length, truncated, lost, ...periodOf(read.requests) }
  },
  // As the command `sluice rules simulate --log` replays it: all rules, whatever the layer of this node.
  open: async (file, onProgress) => {
    const { requests, summary } = await readLog(file, onProgress)
    log = { requests, sample_rate: 1, recording: { recorded: requests.length, truncated: false } }
    return { ...summary, ...periodOf(requests) }
  },
  close: () => {
    log = undefined
  },
  simulate: ({ rules, against }) => {
    const recording = recorded()
    const { requests, sample_rate: rate, options } = recording
    return replay(requests, {
      ...{ rules, against, sample: { rate, seen: factsOf(recording) } },
      ...{ layer: options?.layer ?? undefined, ipv6Prefix: options?.ipv6_prefix ?? undefined },
    })
  },
  match: ({ rule }) => matches(rule),
  profile: ({ rule, windowSeconds }) => profile(rule, windowSeconds),
}

function factsOf(recording: Recording): SeenFacts {
  if (seen?.of === recording) return seen.facts
  const facts = seenFacts(recording.requests)
  facts.lost = recording.recording.lost ?? 0
  seen = { of: recording, facts }
  return facts
}

addEventListener('message', async ({ data: { id, task, ask } }: MessageEvent<Question>) => {
  let reply: Reply
  try {
    const onProgress = (progress: number) => postMessage({ id, progress } satisfies Reply)
    reply = { id, answer: await TASKS[task](ask as never, onProgress) } // the page asks with the type of the task
  } catch (error) {
    const problem = error instanceof ServiceProblem ? { problem: error.problem } : {}
    reply = { id, error: error instanceof Error ? error.message.replace(/^\[\w+\] /, '') : String(error), ...problem }
  }
  postMessage(reply)
})

/** One rule on a memory store, driven by the times of the requests. */
function only(rule: PlainRule): { limiter: Limiter; decide: (request: RecordedCheck) => Decision | undefined } {
  let nowUs = 0
  const clock = { nowUs: () => nowUs }
  const named = [String(rule.store ?? 'default')]
  const store = Object.assign(memoryStore({ clock }), { named, refusesSpread: () => undefined })
  const { layer, ipv6_prefix: prefix } = recorded().options ?? {}
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
  const checks = recorded().requests.filter(isCheck)
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
  for (const request of recorded().requests.filter(isCheck)) {
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
