// Opens a log file for the replay, by the file dialog or by dropping it on the page. The worker reads it: the file is
// not sent anywhere.

import { useEffect, useState } from 'preact/hooks'
import { messageOf } from '../../api.ts'
import { Field } from '../../components/field.tsx'
import { Failure, Notice } from '../../components/notice.tsx'
import { fullCount, percent } from '../../format.ts'
import type { LogSummary } from '../../replay/protocol.ts'
import type { ReplayWorker } from '../../replay/replay-worker.ts'

export type OpenedLog = LogSummary & { readonly id: number }

export type LogFile = {
  readonly opened: OpenedLog | undefined
  /** Share that was read; undefined: no file is being read. */
  readonly progress: number | undefined
  readonly error: string | undefined
  open(file: File | undefined): void
  close(): void
}

type State = Pick<LogFile, 'opened' | 'progress' | 'error'>
const CLOSED: State = { opened: undefined, progress: undefined, error: undefined }

export function useLogFile(worker: ReplayWorker): LogFile {
  const [state, setState] = useState<State>(CLOSED)
  const isBusy = state.progress !== undefined
  const open = async (file: File | undefined): Promise<void> => {
    if (file === undefined || isBusy) return
    const set = (patch: Partial<State>) => setState((old) => ({ ...old, ...patch }))
    set({ progress: 0, error: undefined })
    try {
      const summary = await worker.ask('open', file, (progress) => set({ progress }))
      setState((old) => ({ ...CLOSED, opened: { ...summary, id: (old.opened?.id ?? 0) + 1 } }))
    } catch (error) {
      set({ progress: undefined, error: messageOf(error) }) // keeps the requests that were loaded before
    }
  }
  useEffect(() => {
    const controller = new AbortController()
    const { signal } = controller
    // Without this the browser leaves the page and shows the file.
    addEventListener('dragover', (event) => event.preventDefault(), { signal })
    addEventListener(
      'drop',
      (event) => {
        event.preventDefault()
        void open(event.dataTransfer?.files[0])
      },
      { signal },
    )
    return () => controller.abort()
  }, [isBusy])
  const close = () => {
    void worker.ask('close', undefined)
    setState(CLOSED)
  }
  return { ...state, open: (file) => void open(file), close }
}

export function LogField({ progress, open }: LogFile) {
  return (
    <Field
      label="Log file"
      hint={
        progress === undefined
          ? 'Or drop one on this page: access log, JSON lines or events of Sluice, also .gz. It stays in this browser.'
          : `Reading … ${progress === 0 ? '' : percent(progress)}`
      }
      control={(described) => (
        <input
          {...described}
          type="file"
          accept=".log,.txt,.json,.jsonl,.ndjson,.gz"
          disabled={progress !== undefined}
          onChange={({ currentTarget }) => {
            open(currentTarget.files?.[0])
            currentTarget.value = '' // so that the same file can be opened again
          }}
        />
      )}
    />
  )
}

/** Says which file is replayed, and which of its lines are not. */
export function LogNotice({ opened, error, close }: LogFile) {
  return (
    <>
      <Failure error={error} />
      {opened !== undefined && (
        <Notice>
          <strong>{opened.name}</strong> {textOf(opened)}{' '}
          <button type="button" class="link" onClick={close}>
            Close file
          </button>
          {opened.malformed > 0 && (
            <details>
              <summary>
                {fullCount(opened.malformed)} of {fullCount(opened.lines)} lines are malformed and were skipped
              </summary>
              <ul>
                {opened.reported.map(({ line, reason }) => (
                  <li key={line}>
                    line {line}: {reason}
                  </li>
                ))}
              </ul>
            </details>
          )}
        </Notice>
      )}
    </>
  )
}

function textOf({ requests, refused }: LogSummary): string {
  const counts = `${fullCount(requests)} requests, ${fullCount(refused)} of them refused in the log (429).`
  return `is replayed instead of recorded events: ${counts}`
}
