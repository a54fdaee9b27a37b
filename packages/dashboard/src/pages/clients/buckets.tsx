// Buckets of a client now, with how much is left. Peeks at them: nothing is charged.

import { useCallback, useRef, useState } from 'preact/hooks'
import { send } from '../../api.ts'
import { type Client, keyOf } from '../../clients.ts'
import { Confirm } from '../../components/dialog.tsx'
import { Failure } from '../../components/notice.tsx'
import { Panel } from '../../components/panel.tsx'
import { Tag } from '../../components/status.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { DASH, fullCount, span } from '../../format.ts'
import { useResource } from '../../resource.ts'
import { can } from '../../session.ts'
import { bucketsOf, explain, type KnownBucket, resetKeyOf, sharersOf } from './explanation.ts'
import { type Facts, requestText } from './facts.ts'

const REFRESH_MS = 3000

type Props = { readonly client: Client; readonly requests: readonly Facts[] | undefined }

export function Buckets({ client, requests }: Props) {
  const [asked, setAsked] = useState<KnownBucket>()
  // A busy client has new requests several times a second: they do not end the explanation of the last ones.
  const newest = useRef(requests)
  newest.current = requests
  const load = useCallback(
    async (signal: AbortSignal) => {
      const found = (newest.current ?? []).map(async (facts) => [facts, await explain(client, facts, signal)] as const)
      return bucketsOf(await Promise.all(found))
    },
    [keyOf(client)],
  )
  const buckets = useResource(load, { enabled: requests !== undefined, refreshMs: REFRESH_MS })
  // The service does not answer: what it said last may no longer be so.
  const shown = buckets.error === undefined ? buckets.data : (buckets.data ?? []).map(unknown)
  const columns: Column<KnownBucket>[] = [
    {
      title: 'Limit',
      cell: (bucket) => <LimitName {...bucket} />,
    },
    { title: 'Key', wide: true, cell: ({ scope }) => scope.replaceAll('+', ' + ') },
    { title: 'Request', wide: true, cell: ({ facts }) => <span class="mono">{requestText(facts)}</span> },
    { title: 'Left', cell: (bucket) => <Left bucket={bucket} /> },
    { title: 'Per', align: 'right', wide: true, cell: ({ window_ms: ms }) => span(ms / 1000) },
    {
      title: 'Full in',
      align: 'right',
      wide: true,
      cell: ({ isKnown, reset_after_ms: resetMs, full_after_ms: ms = resetMs }) =>
        isKnown ? span(Math.ceil(ms / 100) / 10) : DASH,
    },
    {
      title: '',
      align: 'right',
      cell: (bucket) =>
        can('editor') &&
        resetKeyOf(bucket) !== undefined && (
          <button type="button" class="link" aria-label={`Reset ${bucket.rule_id}`} onClick={() => setAsked(bucket)}>
            Reset
          </button>
        ),
    },
  ]
  return (
    <Panel title="Buckets now" note="of the newest requests; looking charges nothing">
      <Failure error={buckets.error} retry={buckets.reload} />
      <Table
        caption="Buckets now"
        columns={columns}
        rows={shown}
        rowKey={({ rule_id, name, facts }) => `${rule_id} ${name} ${requestText(facts)}`}
        empty={
          buckets.error === undefined
            ? 'No rule applies to the requests of this client. Explain another request below.'
            : 'Unknown.'
        }
        loadingRows={3}
      />
      {asked !== undefined && (
        <ResetDialog bucket={asked} onDone={buckets.reload} onClose={() => setAsked(undefined)} />
      )}
    </Panel>
  )
}

function unknown(bucket: KnownBucket): KnownBucket {
  return { ...bucket, isKnown: false }
}

/** Breaks after the slash, on a phone. */
function LimitName({ rule_id: rule, name, mode }: KnownBucket) {
  return (
    <>
      <span class="mono">
        {rule}
        {name !== 'default' && (
          <>
            /<wbr />
            {name}
          </>
        )}
      </span>{' '}
      {mode === 'shadow' && <Tag>shadow</Tag>}
    </>
  )
}

function Left({ bucket: { remaining, limit, burst, isKnown } }: { readonly bucket: KnownBucket }) {
  if (!isKnown) return <span class="muted">unknown</span>
  const size = Math.max(limit, burst, 1)
  const tone = remaining <= 0 ? 'empty' : remaining <= size / 5 ? 'low' : 'fine'
  return (
    <span class="left">
      <meter class={`left-meter left-${tone}`} min={0} max={size} value={remaining} aria-label="Units left" />
      <span class="num">
        {fullCount(remaining)} of {fullCount(size)}
      </span>
    </span>
  )
}

type ResetProps = { readonly bucket: KnownBucket; readonly onDone: () => void; readonly onClose: () => void }

function ResetDialog({ bucket, onDone, onClose }: ResetProps) {
  const key = resetKeyOf(bucket)
  const reset = async (reason: string) => {
    const body = { rule_id: bucket.rule_id, key, ...(reason !== '' && { reason }) }
    await send('/rate-limit/buckets/reset', { method: 'POST', body })
    onDone()
  }
  return (
    <Confirm title={`Reset ${bucket.rule_id}`} action="Reset" reason="optional" onConfirm={reset} onClose={onClose}>
      <p>
        Deletes the buckets of <span class="mono">{typeof key === 'string' ? key : JSON.stringify(key)}</span> for all
        limits of <span class="mono">{bucket.rule_id}</span>: {sharersOf(bucket)} with full buckets.
      </p>
      <p>Other nodes that hold a lease of a bucket follow within seconds.</p>
    </Confirm>
  )
}
