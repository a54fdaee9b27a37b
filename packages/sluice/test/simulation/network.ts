// The way from a node to the store and back: messages take time, overtake each other, get lost, and connections break,
// before or after the store has done what it was asked.

import {
  type BucketName,
  type Charge,
  type Give,
  type Given,
  LimiterError,
  type Once,
  type Store,
  type Take,
  type Taken,
} from 'sluice'
import type { Random } from 'sluice/testing'
import type { World } from './world.ts'

export type Weather = {
  /** Chances per message. */
  readonly lost: number
  readonly broken: number
  readonly slow: number
  /** Of a take that gives nothing back: gives are never sent again. */
  readonly doubled?: number
}

export class Network {
  /** Whether anything gets through. */
  up = true
  /** Takes that came twice: nothing is ever sent again. */
  resent = 0
  readonly #world: World
  readonly #random: Random
  readonly #weather: Weather
  readonly #seen = new WeakSet<object>()

  constructor(world: World, random: Random, weather: Weather) {
    this.#world = world
    this.#random = random
    this.#weather = weather
  }

  /** The store as one node sees it. */
  to(store: Store): Store {
    return {
      take: (take: Take) => {
        if (this.#seen.has(take)) this.resent += 1
        this.#seen.add(take)
        return this.#call(() => {
          if (!take.gives?.length && this.#random.next() < (this.#weather.doubled ?? 0)) store.take(take)
          return store.take(take) as Taken
        })
      },
      peek: (charges: readonly Charge[]) => this.#call(() => store.peek(charges) as Taken),
      give: (gives: readonly Give[], opId?: string, once?: Once) =>
        this.#call(() => store.give(gives, opId, once) as Given),
      reset: (bucket: BucketName) => this.#call(() => void store.reset(bucket)),
      close: async () => {},
    }
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
    const { lost, broken: breaks, slow } = this.#weather
    const dice = this.#random.next()
    if (!this.up || dice < lost) return
    const us = this.#random.next() < slow ? this.#random.between(5_000, 400_000) : this.#random.between(50, 3_000)
    this.#world.after(us, dice < lost + breaks ? broken : arrive)
  }
}
