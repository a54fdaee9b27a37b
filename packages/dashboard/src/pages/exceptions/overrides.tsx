// Overrides and bans, newest first.

import { useState } from 'preact/hooks'
import { EmptyState } from '../../components/empty-state.tsx'
import { Failure, Notice } from '../../components/notice.tsx'
import { Panel } from '../../components/panel.tsx'
import type { OverrideList } from '../../exceptions/override.ts'
import { type Created, CreatedNotice, OverrideDialog } from '../../exceptions/override-dialog.tsx'
import { OverrideTable } from '../../exceptions/override-table.tsx'
import { useQuery } from '../../location.ts'
import { useApi } from '../../resource.ts'
import { can } from '../../session.ts'

const REFRESH_MS = 5000
const SHOWN = 1000

export function Overrides() {
  const [query, setQuery] = useQuery()
  const [isOpen, setOpen] = useState(false)
  const [done, setDone] = useState<Created>()
  const list = useApi<OverrideList>('/rate-limit/overrides', { limit: SHOWN }, { refreshMs: REFRESH_MS })
  const wanted = (query.q ?? '').toLowerCase()
  const shown = list.data?.overrides.filter(({ key, rule_id, reason }) =>
    `${key} ${rule_id ?? ''} ${reason}`.toLowerCase().includes(wanted),
  )
  const onDone = (created: Created) => {
    setDone(created)
    list.reload()
  }
  return (
    <Panel
      title="Overrides and bans"
      note={
        <span class="panel-actions">
          <input
            type="search"
            aria-label="Filter overrides"
            placeholder="Key, rule or reason"
            value={query.q ?? ''}
            onInput={({ currentTarget }) => setQuery({ q: currentTarget.value })}
          />
          {can('editor') && (
            <button type="button" class="primary" onClick={() => setOpen(true)}>
              New override
            </button>
          )}
        </span>
      }
    >
      <Failure error={list.error} retry={list.reload} />
      {done !== undefined && (
        <CreatedNotice created={done}>
          Another rule may still refuse the client: the page of its key says so.
        </CreatedNotice>
      )}
      {list.data?.next != null && <Notice>The newest {SHOWN} are shown. Find older ones by their client.</Notice>}
      <OverrideTable
        overrides={list.data === undefined && list.error !== undefined ? [] : shown}
        empty={
          wanted === '' ? (
            <EmptyState title="No overrides">
              An override raises, lowers or lifts a limit for one user, key, address or tenant, for a time; a ban
              refuses every request of it. Rules stay as they are.
            </EmptyState>
          ) : (
            'No override matches.'
          )
        }
        onChange={list.reload}
      />
      {isOpen && <OverrideDialog onDone={onDone} onClose={() => setOpen(false)} />}
    </Panel>
  )
}
