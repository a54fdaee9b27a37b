// Data of a page. Keeps what was loaded while it loads again, so that a refresh moves nothing on the page. Answers to
// outdated questions are dropped. A hidden tab does not refresh.

import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { ApiError, get, messageOf, type Params } from './api.ts'

export type Resource<T> = {
  /** Undefined until the first answer. */
  readonly data: T | undefined
  /** Sentence for people. `data` may still hold the last answer. */
  readonly error: string | undefined
  /** Code of the service for the error, such as NO_ANALYTICS. */
  readonly errorCode: string | undefined
  readonly isLoading: boolean
  reload(): void
}

export type ResourceOptions = {
  /** Loads again this long after each answer. Undefined: once. */
  readonly refreshMs?: number | undefined
  /** False: does not load, for requests that depend on a choice. */
  readonly enabled?: boolean
}

type State<T> = { data?: T | undefined; error?: string | undefined; errorCode?: string | undefined; isLoading: boolean }

/** Loads JSON from the API whenever path or parameters change. */
export function useApi<T>(path: string, params: Params = {}, options: ResourceOptions = {}): Resource<T> {
  const key = JSON.stringify([path, params])
  const load = useCallback((signal: AbortSignal) => get<T>(path, params, signal), [key])
  return useResource(load, options)
}

/** Loads with any function. `load` must keep its identity while the question is the same (useCallback). */
export function useResource<T>(load: (signal: AbortSignal) => Promise<T>, options: ResourceOptions = {}): Resource<T> {
  const { refreshMs, enabled = true } = options
  const [state, setState] = useState<State<T>>({ isLoading: enabled })
  const again = useRef<() => void>(() => {})
  useEffect(() => {
    if (!enabled) return undefined
    const controller = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    const later = () => {
      if (refreshMs !== undefined && !controller.signal.aborted) timer = setTimeout(run, refreshMs)
    }
    const run = async () => {
      clearTimeout(timer)
      if (document.hidden) return later()
      setState((old) => ({ ...old, isLoading: true }))
      try {
        const data = await load(controller.signal)
        if (!controller.signal.aborted) setState({ data, isLoading: false })
      } catch (error) {
        if (!controller.signal.aborted) setState((old) => ({ data: old.data, ...failureOf(error), isLoading: false }))
      }
      later()
    }
    again.current = () => void run()
    void run()
    return () => {
      controller.abort()
      clearTimeout(timer)
    }
  }, [load, refreshMs, enabled])
  const reload = useCallback(() => again.current(), [])
  return { data: state.data, error: state.error, errorCode: state.errorCode, isLoading: state.isLoading, reload }
}

function failureOf(error: unknown): { error: string; errorCode: string | undefined } {
  return { error: messageOf(error), errorCode: error instanceof ApiError ? error.code : undefined }
}
