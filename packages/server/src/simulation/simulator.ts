// Runs simulations in threads: one at a time, a few may wait, and fewer of one token. A thread lives for one
// simulation, so that its memory is freed, and ends when the simulation is cancelled or takes too long.

import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { LimiterError, type RulesInput } from 'sluice'
import type { RecordedRequest } from 'sluice/replay'
import type { DecisionEvent } from '../events/event.ts'
import { PACKAGE_FOLDER } from '../package-facts.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import { TokenPlaces } from '../token-places.ts'

const THREAD = fileURLToPath(new URL('threads/simulation.mjs', PACKAGE_FOLDER))
const WAITING_MAX = 4
/** Cap on simulations of one token, waiting or running. */
const PER_TOKEN_MAX = 2
const RUN_MS_MAX = 25_000
/** The replay of 500,000 events needs about half of it. */
const HEAP_MB_MAX = 1024

/** Origin of the requests, for the answer. */
export type RecordingFacts = {
  readonly source: 'events' | 'requests'
  /** Older events of the range were left out. */
  readonly truncated: boolean
}

export type SimulationOptions = {
  readonly rules: RulesInput
  readonly against: RulesInput | 'recorded' | undefined
  readonly top: number | undefined
  readonly stepSeconds: number | undefined
  readonly layer: 'edge' | 'service' | undefined
  readonly ipv6Prefix: number | undefined
}

/** Settings of the node that decide which rules apply to a request. */
export type ListOptions = { readonly layer: 'edge' | 'service' | null; readonly ipv6_prefix: number | null }

export type Page = { readonly events: readonly DecisionEvent[] } | { readonly requests: readonly RecordedRequest[] }

/** Sends all pages to the thread; resolves with the origin of the requests. */
export type Feed = (send: (page: Page) => void, signal: AbortSignal) => Promise<RecordingFacts>

/** `token`: id of the caller's token. `signal`: aborts when the client disconnects. */
export type Request = { readonly token: string; readonly signal: AbortSignal }

/** A place in the queue. */
type Turn = { start(): void }

type Reply = {
  readonly text?: string
  readonly progress?: number
  readonly error?: { message: string; code?: string; fieldErrors?: LimiterError['fieldErrors'] }
}

export class Simulator {
  /** The first one runs. */
  readonly #turns: Turn[] = []
  readonly #places = new TokenPlaces({
    ...{ max: WAITING_MAX + 1, perTokenMax: PER_TOKEN_MAX },
    ...{ code: 'TOO_MANY_SIMULATIONS', work: 'simulations', fix: 'wait for one of them' },
  })

  /** Resolves with the result as JSON. */
  run(feed: Feed, options: SimulationOptions, request: Request): Promise<string> {
    return this.#inThread(feed, (facts) => ({ run: { ...options, facts } }), request)
  }

  /** Resolves with the requests as JSON, ready to be replayed elsewhere with the same `options`. */
  list(feed: Feed, options: ListOptions, request: Request): Promise<string> {
    return this.#inThread(feed, (facts) => ({ list: { facts, options } }), request)
  }

  async #inThread(feed: Feed, task: (facts: RecordingFacts) => object, { token, signal }: Request): Promise<string> {
    signal.throwIfAborted()
    const free = this.#places.take(token)
    const turn: Turn = { start: () => {} }
    this.#turns.push(turn)
    try {
      if (this.#turns.length > 1) await started(turn, signal)
      return await runThread(feed, task, signal)
    } finally {
      const isRunning = this.#turns[0] === turn
      this.#turns.splice(this.#turns.indexOf(turn), 1)
      free()
      if (isRunning) this.#turns[0]?.start()
    }
  }
}

/** Waits for a turn. Rejects when the client disconnects: its place and its requests are then free. */
function started(turn: Turn, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    turn.start = resolve
    signal.addEventListener('abort', () => reject(signal.reason), { once: true })
  })
}

async function runThread(feed: Feed, task: (facts: RecordingFacts) => object, signal: AbortSignal): Promise<string> {
  signal.throwIfAborted()
  const worker = new Worker(THREAD, { execArgv: [], resourceLimits: { maxOldGenerationSizeMb: HEAP_MB_MAX } })
  worker.unref()
  const late = AbortSignal.timeout(RUN_MS_MAX)
  const ended = AbortSignal.any([signal, late])
  try {
    return await new Promise<string>((resolve, reject) => {
      ended.addEventListener('abort', () => reject(late.aborted ? tooSlow() : ended.reason), { once: true })
      worker.on('error', reject)
      worker.on('message', ({ text, error }: Reply) => {
        if (text !== undefined) resolve(text)
        if (error !== undefined) reject(errorOf(error))
      })
      feed((page) => worker.postMessage(page), ended).then((facts) => worker.postMessage(task(facts)), reject)
    })
  } finally {
    await worker.terminate()
  }
}

function tooSlow(): ProblemError {
  const detail = `The simulation took more than ${RUN_MS_MAX / 1000} s: use a shorter range, or a lower limit.`
  return new ProblemError(problem('SIMULATION_TOO_SLOW', detail))
}

function errorOf({ message, code, fieldErrors }: NonNullable<Reply['error']>): Error {
  if (code !== 'RULE_INVALID') return new Error(message)
  return new LimiterError('RULE_INVALID', message.replace(/^\[\w+\] /, ''), { fieldErrors: fieldErrors ?? [] })
}
