// Simulated network between a node and the store: messages are delayed, reordered or lost, and connections break before
// or after the store has handled a request.

import {
  type BucketName,
  type Charge,
  type Give,
  type GiveResult,
  type IdempotencyKey,
  LimiterError,
  type Store,
  type Take,
  type Taken,
} from 'sluice'
import type { Random } from 'sluice/testing'
import type { World } from './world.ts'

export type NetworkConditions = {
  /** Probabilities per message. */
  readonly lost: number
  readonly broken: number
  readonly slow: number
  /** Probability that a take without gives arrives twice. */
  readonly doubled?: number
}

export class Network {
  /** False during a partition: all messages are lost. */
  up = true
  /** Takes that a node sent twice: an error, because nothing may be resent. */
  resent = 0
  readonly #world: World
  readonly #random: Random
  readonly #conditions: NetworkConditions
  readonly #seen = new WeakSet<object>()

  constructor(world: World, random: Random, conditions: NetworkConditions) {
    this.#world = world
    this.#random = random
    this.#conditions = conditions
  }

  /** The store as seen through this network. */
  to(store: Store): Store {
    return {
      take: (take: Take) => {
        if (this.#seen.has(take)) this.resent += 1
        this.#seen.add(take)
        return this.#call(() => {
          if (!take.gives?.length && this.#random.next() < (this.#conditions.doubled ?? 0)) store.take(take)
          return store.take(take) as Taken
        })
      },
      peek: (charges: readonly Charge[]) => this.#call(() => store.peek(charges) as Taken),
      give: (gives: readonly Give[], opId?: string, idempotencyKey?: IdempotencyKey) =>
        this.#call(() => store.give(gives, opId, idempotencyKey) as GiveResult),
      reset: (bucket: BucketName) => this.#call(() => void store.reset(bucket)),
      close: async () => {},
    }
  }

  /** Sends a message to the other end, which handles it with `work`, and its reply back. */
  call<T>(work: () => T | Promise<T>): Promise<T> {
    return this.#call(work as () => T)
  }

  #call<T>(work: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      const broken = () => reject(new LimiterError('STORE_UNAVAILABLE', 'the connection broke'))
      this.#send(() => {
        const answer = work()
        this.#send(() => resolve(answer), broken)
      }, broken)
    })
  }

  #send(arrive: () => void, broken: () => void): void {
    const { lost, broken: breaks, slow } = this.#conditions
    const dice = this.#random.next()
    if (!this.up || dice < lost) return
    const us = this.#random.next() < slow ? this.#random.between(5_000, 400_000) : this.#random.between(50, 3_000)
    this.#world.after(us, dice < lost + breaks ? broken : arrive)
  }
}
