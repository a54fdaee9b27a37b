// Which of the last 1,000 requests the rule in the editor would match, decided by the engine in a worker.

import { Failure } from '../../components/notice.tsx'
import { Tag } from '../../components/status.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { Time } from '../../components/time.tsx'
import { fullCount } from '../../format.ts'
import type { Matched } from '../../replay/protocol.ts'
import { useLatest, useRecording, useReplayWorker } from '../../replay/replay-worker.ts'
import type { Rule } from './rule.ts'

const REQUESTS = 1000
const LISTED = 8

export function MatchPreview({ rule }: { readonly rule: Rule | undefined }) {
  const worker = useReplayWorker()
  const recording = useRecording(worker, { from: '7d', limit: REQUESTS })
  const loaded = recording.data?.requests
  const key = JSON.stringify(rule)
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
        {fullCount(data.clients)} clients). Alone, it would have refused <strong>{fullCount(data.refused)}</strong>.
      </p>
      {data.matched > 0 && (
        <Table
          caption="Newest matching requests"
          columns={COLUMNS}
          rows={data.newest.slice(0, LISTED)}
          rowKey={(one) => `${one.atMs} ${one.client} ${one.path}`}
          empty=""
        />
      )}
    </div>
  )
}

const COLUMNS: readonly Column<Matched>[] = [
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
    cell: ({ refused }) => (refused ? <Tag tone="bad">refused</Tag> : <Tag tone="good">allowed</Tag>),
  },
]
