// What is there at once or promised: most answers need no waiting, and a promise for each of them would cost more than
// the check.

/** What can be answered at once is not a promise. */
export type Maybe<T> = T | Promise<T>

/** Goes on at once with what is there, and later with what is promised, by whatever kind of promise. */
export function andThen<T, U>(value: Maybe<T>, next: (value: T) => Maybe<U>): Maybe<U> {
  return isPromised(value) ? Promise.resolve(value).then(next) : next(value)
}

export function isPromised<T>(value: Maybe<T>): value is Promise<T> {
  return typeof (value as { readonly then?: unknown } | undefined | null)?.then === 'function'
}

/** As a promise, also of work that throws at once. */
export function promised<T>(work: () => Maybe<T>): Promise<T> {
  try {
    return Promise.resolve(work())
  } catch (error) {
    return Promise.reject(error)
  }
}
