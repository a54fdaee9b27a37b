// Runs asynchronous tasks one at a time, in the order of their submission.

export class SerialQueue {
  #last: Promise<unknown> = Promise.resolve()

  run<T>(task: () => Promise<T>): Promise<T> {
    const result = this.#last.then(task, task)
    this.#last = result.catch(() => {})
    return result
  }
}
