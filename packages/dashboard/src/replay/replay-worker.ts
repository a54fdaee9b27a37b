// A replay worker as a page uses it: promises, and a hook that keeps only the newest question while one is running.

import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { ApiError, apiUrl, messageOf, type Params } from '../api.ts'
import { type Resource, useResource } from '../resource.ts'
import { sessionEnded } from '../session.ts'
import type { RecordingSummary, Reply, TaskName, Tasks } from './protocol.ts'

type OnProgress = (share: number) => void
type Waiting = { resolve: (value: never) => void; reject: (error: Error) => void; onProgress: OnProgress | undefined }

export class ReplayWorker {
  readonly #worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' })
  readonly #waiting = new Map<number, Waiting>()
  #last = 0

  constructor() {
    this.#worker.onmessage = ({ data: { id, answer, error, problem, progress } }: MessageEvent<Reply>) => {
      const waiting = this.#waiting.get(id)
      if (progress !== undefined) return waiting?.onProgress?.(progress)
      this.#waiting.delete(id)
      if (error === undefined) waiting?.resolve(answer as never)
      else waiting?.reject(problem ? new ApiError(error, problem.status, problem.code) : new Error(error))
    }
    // Without a message the worker could not be loaded, as after an upgrade.
    this.#worker.onerror = ({ message }) => this.#failAll(`The replay failed: ${message ?? 'reload this page.'}`)
  }

  ask<Name extends TaskName>(
    task: Name,
    ask: Tasks[Name]['ask'],
    onProgress?: OnProgress,
  ): Promise<Tasks[Name]['answer']> {
    this.#last += 1
    const id = this.#last
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, onProgress })
      this.#worker.postMessage({ id, task, ask })
    })
  }

  close(): void {
    this.#worker.terminate()
  }

  #failAll(message: string): void {
    for (const { reject } of this.#waiting.values()) reject(new Error(message))
    this.#waiting.clear()
  }
}

export function useReplayWorker(): ReplayWorker {
  const ref = useRef<ReplayWorker>(null)
  ref.current ??= new ReplayWorker()
  useEffect(() => () => ref.current?.close(), [])
  return ref.current
}

export type RecordingResource = Resource<RecordingSummary> & {
  /** Bytes that were read so far. */
  readonly bytes: number
}

/** Loads recorded events into the worker whenever the parameters change. */
export function useRecording(worker: ReplayWorker, params: Params, enabled = true): RecordingResource {
  const url = apiUrl('/rate-limit/simulate/requests', params)
  const [bytes, setBytes] = useState(0)
  const load = useCallback(async () => {
    const summary = await worker.ask('record', url, setBytes).catch((error: unknown) => {
      if (error instanceof ApiError && error.status === 401) sessionEnded(error.message)
      throw error
    })
    return { ...summary, url }
  }, [url])
  const { data, ...resource } = useResource(load, { enabled })
  return { ...resource, data: data?.url === url ? data : undefined, bytes }
}

export type Latest<T> = { readonly data: T | undefined; readonly error: string | undefined; readonly isBusy: boolean }

/** Runs `question` whenever `key` changes. While one runs, only the newest waits: dragging never builds up a queue. */
export function useLatest<T>(key: string, question: () => Promise<T>, enabled: boolean): Latest<T> {
  const [state, setState] = useState<Latest<T>>({ data: undefined, error: undefined, isBusy: false })
  const run = useRef({ isBusy: false, isClosed: false, done: '', wanted: key, question })
  run.current.wanted = key
  run.current.question = question
  useEffect(() => {
    run.current.isClosed = false
    return () => {
      run.current.isClosed = true
    }
  }, [])
  useEffect(() => {
    const now = run.current
    if (!enabled || now.isBusy || now.done === key) return
    const next = async (): Promise<void> => {
      const asked = now.wanted
      now.isBusy = true
      setState((old) => ({ ...old, isBusy: true }))
      const result = await now.question().then(
        (data) => ({ data, error: undefined }),
        (error: unknown) => ({ error: messageOf(error) }),
      )
      now.isBusy = false
      now.done = asked
      if (now.isClosed) return
      const isNewest = now.wanted === asked
      setState((old) => ({ data: old.data, ...result, isBusy: !isNewest }))
      if (!isNewest) await next()
    }
    void next()
  }, [key, enabled])
  return state
}
