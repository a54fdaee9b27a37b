// The workers of one node, as seen by one of them: any worker can answer for the whole node. Without --workers the node
// is this process alone.

import cluster from 'node:cluster'
import type { CountsFile } from '../events/pipeline.ts'
import type { PolicyReasonCounts } from '../metrics/service-metrics.ts'
import { workerNumber } from '../worker-number.ts'
import { countsFile } from './counts-file.ts'
import { type FromSupervisor, type FromWorker, type Gathered, isOurs, LEADER_TOPIC, type Question } from './messages.ts'

/** Handles a topic in this worker. */
export type Answer = (payload: never, key: string | undefined) => unknown

export type NodeWorkers = {
  /** Number of workers; 0 without --workers. */
  readonly count: number
  /** Whether this worker acts for the node where only one may, such as sending webhooks. */
  isLeader(): boolean
  /** Registers the handler of a topic. Calls it immediately with payloads kept earlier. */
  answer(topic: string, answer: Answer): void
  /** Queries every worker, including this one. Throws when the supervisor does not reply. */
  gather<T>(topic: string, payload?: unknown, deadlineMs?: number): Promise<Gathered<T>>
  /** Gathers, and keeps the payload for workers that start later, unless it is null. */
  keep(topic: string, key: string, payload: unknown): Promise<Gathered<unknown>>
  /** Sends metrics to the supervisor, in case this worker crashes. */
  report(report: string, policyReasons: PolicyReasonCounts): void
  /** Keeps event counts for the supervisor, in case this worker is killed. Undefined without --workers. */
  readonly countsFile: CountsFile | undefined
}

const ANSWER_MS = 1000
/** Extra time for the supervisor, on top of the deadline of the workers. */
const SUPERVISOR_MS = 2000

/** Joins the other workers if this process is a cluster worker. */
export function joinWorkers(): Promise<NodeWorkers> {
  return cluster.isWorker ? Channel.open() : Promise.resolve(singleWorker())
}

export function singleWorker(): NodeWorkers {
  const answers = new Map<string, Answer>()
  const ask = async <T>({ topic, payload, key }: Question): Promise<Gathered<T>> => {
    const answer = (await answers.get(topic)?.(payload as never, key)) as T
    return { answers: [answer], silent: 0 }
  }
  return {
    count: 0,
    isLeader: () => true,
    answer: (topic, answer) => void answers.set(topic, answer),
    gather: (topic, payload) => ask({ topic, payload }),
    keep: (topic, key, payload) => ask({ topic, key, payload }),
    report: () => {},
    countsFile: undefined,
  }
}

class Channel implements NodeWorkers {
  count = 0
  readonly #answers = new Map<string, Answer>()
  /** Kept payloads of topics without a handler yet, during the start. */
  #early: Question[] = []
  readonly #waiting = new Map<number, (gathered: Gathered<unknown>) => void>()
  #joined: () => void = () => {}
  countsFile: CountsFile | undefined
  #isLeader = false
  #lastId = 0

  static async open(): Promise<NodeWorkers> {
    const channel = new Channel()
    const joined = new Promise<void>((resolve) => {
      channel.#joined = resolve
    })
    channel.answer(LEADER_TOPIC, (leader: number) => {
      channel.#isLeader = leader === workerNumber()
    })
    process.on('message', (message) => {
      if (isOurs<FromSupervisor>(message)) channel.#receive(message)
    })
    send({ sluice: 'join' })
    await joined
    return channel
  }

  isLeader(): boolean {
    return this.#isLeader
  }

  answer(topic: string, answer: Answer): void {
    this.#answers.set(topic, answer)
    for (const { payload, key } of this.#early.filter((early) => early.topic === topic)) answer(payload as never, key)
    this.#early = this.#early.filter((early) => early.topic !== topic)
  }

  gather<T>(topic: string, payload?: unknown, deadlineMs: number = ANSWER_MS): Promise<Gathered<T>> {
    return this.#ask({ topic, payload }, deadlineMs)
  }

  keep(topic: string, key: string, payload: unknown): Promise<Gathered<unknown>> {
    return this.#ask({ topic, payload, key }, ANSWER_MS)
  }

  report(report: string, policyReasons: PolicyReasonCounts): void {
    send({ sluice: 'report', report, policyReasons })
  }

  #ask<T>(question: Question, deadlineMs: number): Promise<Gathered<T>> {
    this.#lastId += 1
    const id = this.#lastId
    return new Promise((resolve, reject) => {
      const late = () => {
        if (!this.#waiting.delete(id)) return
        reject(new Error(`the supervisor of the workers did not answer within ${deadlineMs + SUPERVISOR_MS} ms`))
      }
      // Reads an answer that has arrived first: this worker may be the slow one.
      const timer = setTimeout(() => setImmediate(late), deadlineMs + SUPERVISOR_MS)
      this.#waiting.set(id, (gathered) => {
        clearTimeout(timer)
        this.#waiting.delete(id)
        resolve(gathered as Gathered<T>)
      })
      send({ sluice: 'gather', id, deadlineMs, ...question })
    })
  }

  #receive(message: FromSupervisor): void {
    if (message.sluice === 'gathered') this.#waiting.get(message.id)?.(message.gathered)
    else if (message.sluice === 'ask') void this.#reply(message.id, message)
    else {
      this.count = message.workers
      this.countsFile = countsFile(workerNumber())
      for (const kept of message.kept) void this.#answerTo(kept)
      this.#joined()
    }
  }

  /** Always replies: the supervisor would consider this worker stuck. */
  async #reply(id: number, question: Question): Promise<void> {
    let answer: unknown
    try {
      answer = await this.#answerTo(question)
    } finally {
      send({ sluice: 'answer', id, answer })
    }
  }

  #answerTo(question: Question): unknown {
    const answer = this.#answers.get(question.topic)
    if (answer !== undefined) return answer(question.payload as never, question.key)
    if (question.key !== undefined) this.#early.push(question)
    return undefined
  }
}

/** Drops messages once the channel is closed: the node is shutting down. */
function send(message: FromWorker): void {
  if (process.connected) process.send?.(message, undefined, undefined, () => {})
}
