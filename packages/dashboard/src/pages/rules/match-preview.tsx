// Which of the newest requests the rule in the editor would match and refuse, decided by the engine in a worker. A
// busy service has a thousand in seconds: it reads more if they cover too few windows of the rule.

import { useEffect, useState } from 'preact/hooks'
import { nowMs } from '../../clock.ts'
import { Failure } from '../../components/notice.tsx'
import { Tag } from '../../components/status.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { Time } from '../../components/time.tsx'
import { DASH, fullCount } from '../../format.ts'
import type { Matched } from '../../replay/protocol.ts'
import { useLatest, useRecording, useReplayWorker } from '../../replay/replay-worker.ts'
import { isTelling, type Rule, refusalText } from './rule.ts'

const REQUESTS = 1000
/** As many as a browser replays in about a second. */
const REQUESTS_MAX = 100_000
const LISTED = 8

export function MatchPreview({ rule }: { readonly rule: Rule | undefined }) {
  const worker = useReplayWorker()
  const [wanted, setWanted] = useState(REQUESTS)
  const recording = useRecording(worker, { from: '7d', limit: wanted })
  const { requests: loaded, fromMs = nowMs(), truncated = false } = recording.data ?? {}
  const seconds = (nowMs() - fromMs) / 1000
  const isEnough = rule === undefined || !truncated || isTelling(rule, seconds)
  useEffect(() => {
    if (loaded !== undefined && !isEnough) setWanted(REQUESTS_MAX)
  }, [loaded, isEnough])
  const key = JSON.stringify([rule, fromMs, loaded])
  const { data, error } = useLatest(
    key,
    async () => rule && worker.ask('match', { rule }),
    loaded !== undefined && rule !== undefined,
  )
  if (recording.errorCode === 'NO_ANALYTICS') return <p class="muted">This node stores no events.</p>
  if (recording.error !== undefined) return <Failure error={recording.error} retry={recording.reload} />
  if (loaded === 0) return <p class="muted">No requests are recorded yet.</p>
  if (error !== undefined) return <Failure error={error} />
  if (data === undefined) {
    return <p class="muted">{rule ? 'Replaying requests …' : 'Appears once the rule is valid.'}</p>
  }
  return (
    <div class="stack">
      <p role="status">
        Matches <strong>{fullCount(data.matched)}</strong> of the last {fullCount(data.total)} recorded requests (
        {fullCount(data.clients)} clients). {rule && refusalText(rule, seconds, data.refused)}
      </p>
      {data.matched > 0 && (
        <Table
          caption="Newest matching requests"
          columns={columnsOf(rule === undefined || isTelling(rule, seconds))}
          rows={data.newest.slice(0, LISTED)}
          rowKey={(one) => `${one.atMs} ${one.client} ${one.path}`}
          empty=""
        />
      )}
    </div>
  )
}

/** `isTold` false: whether a request would have been allowed is not known. */
const columnsOf = (isTold: boolean): readonly Column<Matched>[] => [
  { title: 'When', wide: true, cell: ({ atMs }) => <Time at={atMs} /> },
  { title: 'Client', cell: ({ client }) => <span class="mono">{client}</span> },
  {
    title: 'Request',
    cell: ({ method, path }) => (
      <span class="mono">
        {method} {path}
      </span>
    ),
  },
  {
    title: 'Result',
    align: 'right',
    cell: ({ refused }) => {
      if (refused) return <Tag tone="bad">refused</Tag>
      return isTold ? <Tag tone="good">allowed</Tag> : DASH
    },
  },
]
