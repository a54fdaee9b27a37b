// Supervisor side of the channels to the workers. Forwards questions and collects answers without waiting for stuck
// workers, and replays kept payloads to workers that start later.

import cluster, { type Worker } from 'node:cluster'
import type { Log } from '../log.ts'
import type { Report } from '../metrics/reports.ts'
import type { PolicyReasonCounts } from '../metrics/service-metrics.ts'
import { WORKER_NUMBER_ENV } from '../worker-number.ts'
import type { WorkerCounts } from './counts-file.ts'
import {
  type FromSupervisor,
  type FromWorker,
  type Gathered,
  isOurs,
  type Kept,
  LEADER_TOPIC,
  METRICS_TOPIC,
  type Question,
} from './messages.ts'
import { sumReasons } from './policy-log.ts'
import { WorkerReports } from './worker-reports.ts'

type Member = {
  readonly worker: Worker
  /** Its number in this node, that of its predecessor if it replaces one. */
  readonly number: number
  state: 'starting' | 'joined' | 'listening'
  /** Missed a deadline and has sent nothing since. Gathers do not wait for it. */
  silent: boolean
}

type Collection = {
  readonly topic: string
  readonly waiting: Set<Member>
  readonly answers: unknown[]
  done(): void
}

/** A worker that takes longer is considered stuck. */
const STUCK_MS = 1000

export class WorkerChannels {
  readonly #members = new Map<number, Member>()
  readonly #reports = new WorkerReports()
  /** Totals of each worker, and of all that have ended. */
  readonly #policyReasons = new Map<number | 'ended', PolicyReasonCounts>()
  readonly #kept = new Map<string, Kept>()
  readonly #collections = new Map<number, Collection>()
  readonly #counts: WorkerCounts
  readonly #log: Log
  #leader: number | undefined
  #lastId = 0

  constructor(counts: WorkerCounts, log: Log) {
    this.#counts = counts
    this.#log = log
  }

  /** Forks a worker with these variables. */
  fork(env: Readonly<Record<string, string>>): Worker {
    const number = this.#counts.take()
    const worker = cluster.fork({ ...env, [WORKER_NUMBER_ENV]: number })
    const member: Member = { worker, number, state: 'starting', silent: false }
    this.#members.set(worker.id, member)
    worker.on('message', (message) => {
      if (isOurs<FromWorker>(message)) void this.#receive(member, message)
    })
    worker.once('listening', () => {
      member.state = 'listening'
    })
    void this.#untilEnd(member)
    return worker
  }

  /** Counts a worker that exited and was replaced. */
  replaced(): void {
    this.#reports.replaced()
  }

  /** Checks that on_fail decided on this node, since its start. */
  policyReasons(): PolicyReasonCounts {
    return sumReasons(this.#policyReasons.values())
  }

  /** Messages can arrive after the exit: totals are final once the channel is closed as well. */
  async #untilEnd(member: Member): Promise<void> {
    const { worker } = member
    const closed = new Promise((resolve) => worker.once('disconnect', resolve))
    await new Promise((resolve) => worker.once('exit', resolve))
    this.#countEvents(member)
    this.#members.delete(worker.id)
    for (const collection of this.#collections.values()) settle(collection, member)
    this.#chooseLeader()
    await closed
    const [ended = {}, last = {}] = [this.#policyReasons.get('ended'), this.#policyReasons.get(worker.id)]
    this.#policyReasons.set('ended', sumReasons([ended, last]))
    this.#policyReasons.delete(worker.id)
    await this.#reports.retire(worker.id)
  }

  /** Counts what died with a worker. */
  #countEvents({ worker, number }: Member): void {
    const counts = this.#counts.end(number)
    if (counts === undefined) return
    this.#reports.ended(worker.id, counts)
    const lost = counts.sinks.flatMap((sink) => (sink.lost ? [[sink.name, sink.lost] as const] : []))
    const { pid } = worker.process
    if (lost.length > 0) this.#log.event('worker_events_lost', { pid, lost: Object.fromEntries(lost) })
  }

  async #receive(member: Member, message: FromWorker): Promise<void> {
    member.silent = false
    if (message.sluice === 'join') {
      member.state = 'joined'
      this.#chooseLeader()
      send(member, { sluice: 'joined', workers: this.#counts.workers, kept: [...this.#kept.values()] })
    } else if (message.sluice === 'report') {
      this.#reports.note(member.worker.id, { totals: message.report })
      this.#policyReasons.set(member.worker.id, message.policyReasons)
    } else if (message.sluice === 'answer') {
      this.#answered(member, message.id, message.answer)
    } else {
      const { id, topic, payload, key, deadlineMs } = message
      const gathered = await this.#gather({ topic, payload, key }, deadlineMs)
      send(member, { sluice: 'gathered', id, gathered })
    }
  }

  #answered(member: Member, id: number, answer: unknown): void {
    const collection = this.#collections.get(id)
    if (collection === undefined) return // past the deadline
    if (collection.topic === METRICS_TOPIC) this.#reports.note(member.worker.id, answer as Report)
    else if (answer !== undefined) collection.answers.push(answer)
    settle(collection, member)
  }

  async #gather(question: Question, deadlineMs: number): Promise<Gathered<unknown>> {
    const { topic, key } = question
    if (key !== undefined) this.#keep({ ...question, key })
    this.#lastId += 1
    const id = this.#lastId
    const listening = [...this.#members.values()].filter(({ state }) => state === 'listening')
    const waiting = new Set(listening.filter(({ silent }) => !silent))
    const answers: unknown[] = []
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, deadlineMs)
      const done = () => {
        clearTimeout(timer)
        resolve()
      }
      this.#collections.set(id, { topic, waiting, answers, done })
      for (const member of key === undefined ? [...waiting] : this.#joined())
        send(member, { sluice: 'ask', id, ...question })
      if (waiting.size === 0) done()
    })
    this.#collections.delete(id)
    if (deadlineMs >= STUCK_MS) for (const member of waiting) member.silent = true
    const answered = listening.filter((member) => !member.silent && !waiting.has(member))
    const silent = listening.length - answered.length
    if (topic !== METRICS_TOPIC) return { answers, silent }
    const living = new Set(this.#members.keys())
    const up = new Set(answered.map(({ number }) => number))
    return { answers: await this.#reports.all(living, silent, up, this.#counts.workers), silent }
  }

  /** Kept payloads also go to stuck and starting workers, which read them later. */
  #joined(): Member[] {
    return [...this.#members.values()].filter(({ state }) => state !== 'starting')
  }

  #keep(kept: Kept): void {
    const name = JSON.stringify([kept.topic, kept.key])
    if (kept.payload === null) this.#kept.delete(name)
    else this.#kept.set(name, kept)
  }

  #chooseLeader(): void {
    const leader = this.#joined()[0]?.number
    if (leader === undefined || leader === this.#leader) return
    this.#leader = leader
    void this.#gather({ topic: LEADER_TOPIC, key: '', payload: leader }, STUCK_MS)
  }
}

function settle({ waiting, done }: Collection, member: Member): void {
  if (waiting.delete(member) && waiting.size === 0) done()
}

/** Drops messages to an exited worker. */
function send({ worker }: Member, message: FromSupervisor): void {
  if (worker.isConnected()) worker.send(message, () => {})
}
