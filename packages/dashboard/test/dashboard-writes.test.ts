// The dashboard in real Chromium: everything that changes rules, clients and incidents. Each suite leaves them as it
// found them; those that fill the recording come last.

import { describe } from 'vitest'
import { CHROMIUM } from './chromium.ts'
import { useDashboard } from './dashboard.ts'
import { elsewhereTests } from './suites/elsewhere.ts'
import { fleetTests } from './suites/fleet.ts'
import { hostileTextTests } from './suites/hostile-texts.ts'
import { operateTests } from './suites/operate.ts'
import { rulesTests } from './suites/rules.ts'

describe.skipIf(CHROMIUM === undefined)('changes on the dashboard in Chromium', () => {
  const dashboard = useDashboard()
  rulesTests(dashboard)
  elsewhereTests(dashboard)
  hostileTextTests(dashboard)
  operateTests(dashboard)
  fleetTests(dashboard)
})
