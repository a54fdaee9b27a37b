// Demo traffic: what to do while a service has few requests. The requests go through the real engine.

import { useState } from 'preact/hooks'
import { messageOf, send } from '../api.ts'
import { useQuery } from '../location.ts'
import { type Resource, useApi } from '../resource.ts'
import { can } from '../session.ts'
import { EmptyState } from './empty-state.tsx'
import { Failure, Notice } from './notice.tsx'
import { Panel } from './panel.tsx'
import { Time } from './time.tsx'

type DemoState = { readonly running: boolean; readonly ends_at: string | null }

const PATH = '/demo'
const REFRESH_MS = 5000
/** With fewer requests in five minutes, such as a few by hand, a service offers demo traffic. */
const QUIET_MAX = 50

/** On the overview: says that demo traffic runs, or how to begin while there is little traffic. */
export function DemoTraffic({ requests }: { readonly requests: number | undefined }) {
  const [, setQuery] = useQuery()
  const demo = useApi<DemoState>(PATH, {}, { refreshMs: REFRESH_MS })
  const onStarted = () => {
    demo.reload()
    setQuery({ range: '1m', from: undefined, to: undefined }) // second by second
  }
  if (demo.data?.running === true) return <Running demo={demo} endsAt={demo.data.ends_at} />
  if (requests === undefined || requests >= QUIET_MAX || demo.data === undefined) return null
  return (
    <Panel title="Getting started">
      <EmptyState
        title={`${requests === 0 ? 'No' : 'Few'} requests in the last five minutes`}
        action={<DemoButton onStarted={onStarted} />}
      >
        <p>
          Every check of your applications appears here within seconds: how many pass, which rule refuses whom, and how
          long a decision takes. Call <code>POST /api/v1/rate-limit/check</code>, or see first what it looks like.
        </p>
      </EmptyState>
    </Panel>
  )
}

function Running({ demo, endsAt }: { readonly demo: Resource<DemoState>; readonly endsAt: string | null }) {
  const [error, setError] = useState<string>()
  const stop = () => {
    setError(undefined)
    send(PATH, { method: 'DELETE' }).then(demo.reload, (failure: unknown) => setError(messageOf(failure)))
  }
  return (
    <Notice>
      Demo traffic is running, from clients called demo-…; it ends <Time at={endsAt} as="ago" /> and its rules are
      removed.{' '}
      {can('editor') && (
        <button type="button" class="link" onClick={stop}>
          Stop demo traffic
        </button>
      )}
      <Failure error={error} />
    </Notice>
  )
}

/** Starts demo traffic; nothing for a role that may not change rules. */
export function DemoButton({ onStarted }: { readonly onStarted?: () => void }) {
  const [error, setError] = useState<string>()
  const [isBusy, setBusy] = useState(false)
  const [isStarted, setStarted] = useState(false)
  const start = async () => {
    setBusy(true)
    setError(undefined)
    try {
      await send(PATH, { method: 'POST', body: {} })
      setStarted(true)
      onStarted?.()
    } catch (failure) {
      setError(messageOf(failure))
    }
    setBusy(false)
  }
  if (!can('editor')) return null
  return (
    <>
      <button type="button" class="primary" disabled={isBusy || isStarted} onClick={() => void start()}>
        {isStarted ? 'Demo traffic is on its way' : 'Send demo traffic'}
      </button>
      <p class="muted">
        Creates three rules for it, sends 200 requests a second for 3 minutes, then removes the rules.
      </p>
      <Failure error={error} />
    </>
  )
}
