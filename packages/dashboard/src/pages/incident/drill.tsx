// Drill: rehearses an outage of Redis on the node that serves this page.

import { useState } from 'preact/hooks'
import { send } from '../../api.ts'
import { Confirm } from '../../components/dialog.tsx'
import { SelectField } from '../../components/field.tsx'
import { Notice } from '../../components/notice.tsx'
import { Panel } from '../../components/panel.tsx'
import { useFleet } from '../../fleet.ts'
import { answer, can } from '../../session.ts'

const SECONDS = { 10: '10 seconds', 30: '30 seconds', 60: '1 minute', 300: '5 minutes' }

export function Drill() {
  const [isOpen, setOpen] = useState(false)
  const [seconds, setSeconds] = useState('30')
  const [started, setStarted] = useState<string>()
  const { fleet } = useFleet()
  const node = answer.value?.node
  const store = fleet?.nodes.find((one) => one.node === node)?.store
  const run = async (length: number, reason: string) => {
    await send('/admin/drill', { method: 'POST', body: { seconds: length, ...(reason !== '' && { reason }) } })
    setStarted(length === 0 ? 'The drill has ended.' : `Drill on ${node}, for ${length} seconds.`)
  }
  return (
    <Panel title="Drill">
      <div class="tool">
        <p class="tool-text">
          Rehearses an outage of Redis: the circuit breaker of {node} opens, leases are spent, then the policy on_fail
          decides. Other nodes are not affected. Watch the shaded period on the overview.
        </p>
        {store === 'memory' && <p class="tool-state">Counters are in memory: there is no Redis to lose.</p>}
        {started !== undefined && <Notice>{started}</Notice>}
        {can('admin') && store === 'redis' && (
          <div class="tool-actions">
            <button type="button" onClick={() => setOpen(true)}>
              Start drill
            </button>
            {started !== undefined && (
              <button type="button" onClick={() => void run(0, '').catch(() => {})}>
                End drill
              </button>
            )}
          </div>
        )}
      </div>
      {isOpen && (
        <Confirm
          title="Start a drill"
          action="Start drill"
          danger
          reason="optional"
          onConfirm={(reason) => run(Number(seconds), reason)}
          onClose={() => setOpen(false)}
        >
          <SelectField label="Length" value={seconds} onValue={setSeconds} options={SECONDS} />
          <p>
            For that long, {node} decides without Redis: rules with <code>on_fail: open</code> admit everything beyond
            their leases, rules with <code>on_fail: closed</code> refuse it. This is real traffic.
          </p>
        </Confirm>
      )}
    </Panel>
  )
}
