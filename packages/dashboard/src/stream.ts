// Server-sent events. Reconnects by itself; says whether the connection is open. Closed while the tab is hidden, so
// that a forgotten tab costs the service nothing.

import { useEffect, useRef, useState } from 'preact/hooks'
import { ApiError, apiUrl, checked, type Params } from './api.ts'

export type StreamState = {
  readonly name: 'connecting' | 'open' | 'paused'
  /** Reason that the service gives for refusing the stream. */
  readonly error?: string | undefined
}

type Handlers = Readonly<Record<string, (data: unknown) => void>>

/** Browsers give up after some failures, such as a 503 of a restarting node. */
const RECONNECT_MS = 3000

/** Calls a handler for each event, by its name; `message` for events without one. Undefined path: no connection. */
export function useStream(path: string | undefined, params: Params, handlers: Handlers): StreamState {
  const [state, setState] = useState<StreamState>({ name: 'connecting' })
  const latest = useRef(handlers)
  latest.current = handlers
  const names = Object.keys(handlers).join()
  const url = path === undefined ? undefined : apiUrl(path, params)
  useEffect(() => {
    if (url === undefined) {
      setState({ name: 'paused' })
      return undefined
    }
    return follow(url, names.split(','), setState, (name, data) => latest.current[name]?.(data))
  }, [url, names])
  return state
}

function follow(
  url: string,
  names: readonly string[],
  setState: (state: StreamState) => void,
  handle: (name: string, data: unknown) => void,
): () => void {
  let source: EventSource | undefined
  let timer: ReturnType<typeof setTimeout> | undefined
  const open = (error?: string) => {
    setState({ name: 'connecting', error })
    const opened = new EventSource(url)
    source = opened
    opened.onopen = () => setState({ name: 'open' })
    opened.onerror = async () => {
      if (opened.readyState !== EventSource.CLOSED) return setState({ name: 'connecting' })
      const reason = await refusalOf(url)
      if (source !== opened) return
      setState({ name: 'connecting', error: reason })
      clearTimeout(timer)
      timer = setTimeout(() => open(reason), RECONNECT_MS)
    }
    for (const name of names) {
      opened.addEventListener(name, (event) => handle(name, JSON.parse((event as MessageEvent<string>).data)))
    }
  }
  const close = () => {
    clearTimeout(timer)
    source?.close()
    source = undefined
  }
  const onVisibility = () => {
    if (document.hidden) close()
    else if (source === undefined) open()
  }
  if (!document.hidden) open()
  document.addEventListener('visibilitychange', onVisibility)
  return () => {
    document.removeEventListener('visibilitychange', onVisibility)
    close()
  }
}

/** EventSource hides status and body of a refusal: asks again. Undefined: the service would not refuse now. */
async function refusalOf(url: string): Promise<string | undefined> {
  const controller = new AbortController()
  try {
    await checked(await fetch(url, { signal: controller.signal }))
    return undefined
  } catch (error) {
    return error instanceof ApiError ? error.message : undefined // the service may be restarting
  } finally {
    controller.abort()
  }
}
