// Open alerts of all nodes, in words.

import { Notice } from '../../components/notice.tsx'
import { type Fleet, type FleetAlert, nodeName } from '../../fleet.ts'
import { wholeSpan } from '../../format.ts'

const SHOWN_MAX = 5

export function Alerts({ fleet }: { readonly fleet: Fleet | undefined }) {
  if (fleet === undefined) return null
  const { alerts, incomplete } = fleet
  if (alerts.length === 0 && incomplete === null) return null
  return (
    <Notice tone="warning">
      <ul class="alerts" aria-label="Open alerts">
        {incomplete !== null && <li>Other nodes may be missing below: {incomplete}</li>}
        {alerts.slice(0, SHOWN_MAX).map((alert) => (
          <li key={`${alert.node} ${alert.address} ${alert.type} ${JSON.stringify(alert.data)}`}>
            <strong>{nodeName(fleet, alert)}</strong> {sentenceOf(alert)}
            {alert.for_seconds > 0 && <span class="muted"> for {wholeSpan(alert.for_seconds)}</span>}
          </li>
        ))}
        {alerts.length > SHOWN_MAX && <li class="muted">and {alerts.length - SHOWN_MAX} more</li>}
      </ul>
    </Notice>
  )
}

function sentenceOf({ type, data }: FleetAlert): string {
  switch (type) {
    case 'node.degraded':
      return `is degraded: ${(data.reasons as readonly string[]).join('; ')}`
    case 'node.silent':
      return 'does not report any more'
    case 'refusals.spike':
      return 'refuses a much larger share of requests than before'
    case 'slo.burn':
      return `burns the error budget of ${String(data.slo)} fast`
    case 'sink.down':
      return `cannot store events in ${String(data.sink)}`
    default:
      return type
  }
}
