// Incident: kill switch, freeze, global factor and drill. Each change is confirmed in a dialog that says what will
// happen.

import { PageHead } from '../../components/panel.tsx'
import { Drill } from './drill.tsx'
import { Factor } from './factor.tsx'
import { Freeze } from './freeze.tsx'
import { useIncident } from './incident.ts'
import { KillSwitch } from './kill-switch.tsx'
import './incident.css'

export function Page() {
  const incident = useIncident()
  return (
    <>
      <PageHead title="Incident" />
      <KillSwitch />
      <div class="columns">
        <Factor incident={incident} />
        <Freeze incident={incident} />
      </div>
      <Drill />
    </>
  )
}
