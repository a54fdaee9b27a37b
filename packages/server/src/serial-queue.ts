// Runs asynchronous tasks one at a time, in the order of their submission. Background tasks run while no other waits.

type Task = () => Promise<void>

export class SerialQueue {
  readonly #tasks: Task[] = []
  readonly #background: Task[] = []
  #isRunning = false

  run<T>(task: () => Promise<T>): Promise<T> {
    return this.#add(this.#tasks, task)
  }

  runInBackground<T>(task: () => Promise<T>): Promise<T> {
    return this.#add(this.#background, task)
  }

  #add<T>(tasks: Task[], task: () => Promise<T>): Promise<T> {
    const result = new Promise<T>((resolve, reject) => {
      tasks.push(async () => {
        try {
          resolve(await task())
        } catch (error) {
          reject(error)
        }
      })
    })
    if (!this.#isRunning) void this.#runAll()
    return result
  }

  async #runAll(): Promise<void> {
    this.#isRunning = true
    for (;;) {
      const task = this.#tasks.shift() ?? this.#background.shift()
      if (task === undefined) break
      await task()
    }
    this.#isRunning = false
  }
}

/** Runs tasks one at a time; those of several owners alternate, so that one with many does not hold up the others. */
export class FairQueue<Owner extends object> {
  readonly #all = new SerialQueue()
  readonly #ofOwner = new WeakMap<Owner, SerialQueue>()

  run<T>(owner: Owner, task: () => Promise<T>): Promise<T> {
    const known = this.#ofOwner.get(owner)
    const own = known ?? new SerialQueue()
    if (known === undefined) this.#ofOwner.set(owner, own)
    return own.run(() => this.#all.run(task))
  }
}
