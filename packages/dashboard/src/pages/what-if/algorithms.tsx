// The same limit with every algorithm, replayed after the user has let go.

import { useEffect, useState } from 'preact/hooks'
import type { AlgorithmName } from 'sluice/algorithms'
import type { ReplayResult } from 'sluice/replay'
import { messageOf } from '../../api.ts'
import { ABOUT } from '../../bucket/algorithms.ts'
import { Num } from '../../components/number.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { useLatest } from '../../replay/replay-worker.ts'
import { type Change, COMPARED, impossible } from './candidate.ts'

/** Time without a change before the algorithms are compared: dragging comes first. */
const PAUSE_MS = 500

/** `result`: a text if the algorithm cannot be used; undefined while it is replayed. */
type Row = { readonly algorithm: AlgorithmName; readonly result: ReplayResult | string | undefined }

type Props = {
  readonly change: Change
  readonly ruleId: string
  readonly simulate: (change: Change) => Promise<ReplayResult>
  readonly onSelect: (algorithm: AlgorithmName) => void
}

export function Algorithms({ change, ruleId, simulate, onSelect }: Props) {
  const [settled, setSettled] = useState(change)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(change), PAUSE_MS)
    return () => clearTimeout(timer)
  }, [change])
  const keyOf = ({ limit, burst }: Change) => JSON.stringify([limit, burst])
  const compare = async () => {
    const rows: Row[] = []
    for (const algorithm of COMPARED) {
      const why = impossible(algorithm, settled)
      // A rule may not support an algorithm: the others are still compared.
      rows.push({ algorithm, result: why ?? (await simulate({ ...settled, algorithm }).catch(messageOf)) })
    }
    return { key: keyOf(settled), rows }
  }
  const { data } = useLatest(keyOf(settled), compare, true)
  // The figures of another limit are not shown as those of this one.
  const isCurrent = data === undefined || data.key === keyOf(change)
  const rows = isCurrent ? data?.rows : COMPARED.map((algorithm): Row => ({ algorithm, result: undefined }))
  const figuresOf = ({ result }: Row) => (typeof result === 'string' ? undefined : result)
  const own = (row: Row) => figuresOf(row)?.rules.find(({ rule_id: id }) => id === ruleId)
  const columns: Column<Row>[] = [
    {
      title: 'Algorithm',
      cell: ({ algorithm, result }) => (
        <>
          <button
            type="button"
            class="link"
            aria-pressed={algorithm === change.algorithm}
            disabled={typeof result === 'string'}
            onClick={() => onSelect(algorithm)}
          >
            {ABOUT[algorithm].title}
          </button>
          {typeof result === 'string' && <span class="muted"> {result}</span>}
        </>
      ),
    },
    { title: 'Refused', align: 'right', cell: (row) => <Num value={own(row)?.refused} /> },
    { title: 'Clients', align: 'right', wide: true, cell: (row) => <Num value={own(row)?.clients_refused} /> },
    {
      title: 'Newly denied',
      align: 'right',
      cell: (row) => <Num value={figuresOf(row)?.changes?.newly_denied} />,
    },
  ]
  return (
    <Table
      caption="Algorithms side by side"
      columns={columns}
      rows={rows}
      rowKey={({ algorithm }) => algorithm}
      selected={change.algorithm}
      empty=""
    />
  )
}
