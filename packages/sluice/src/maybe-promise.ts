// A value, or a promise of one: most checks need no round trip, and a promise would cost more than the check.

export type MaybePromise<T> = T | Promise<T>

/** Calls `next` synchronously with a value, or after a promise (any thenable) resolves. */
export function andThen<T, U>(value: MaybePromise<T>, next: (value: T) => MaybePromise<U>): MaybePromise<U> {
  return isPromise(value) ? Promise.resolve(value).then(next) : next(value)
}

export function isPromise<T>(value: MaybePromise<T>): value is Promise<T> {
  return typeof (value as { readonly then?: unknown } | undefined | null)?.then === 'function'
}

/** Runs `work` and returns a promise of its result; a synchronous throw becomes a rejection. */
export function toPromise<T>(work: () => MaybePromise<T>): Promise<T> {
  try {
    return Promise.resolve(work())
  } catch (error) {
    return Promise.reject(error)
  }
}
