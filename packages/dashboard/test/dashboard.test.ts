// The dashboard in real Chromium, against a real service with Redis and PostgreSQL: every page, the shell, and replays.
// One service and one browser for all tests of a file, one after the other. `dashboard-writes.test.ts` has the tests
// that change rules and incidents, and runs at the same time.

import { describe } from 'vitest'
import { CHROMIUM } from './chromium.ts'
import { useDashboard } from './dashboard.ts'
import { learnTests } from './suites/learn.ts'
import { logFileTests } from './suites/log-file.ts'
import { looksTests } from './suites/looks.ts'
import { shellTests } from './suites/shell.ts'
import { whatIfTests } from './suites/what-if.ts'

if (CHROMIUM === undefined) process.stderr.write('sluice: tests of the dashboard are skipped: chromium is missing\n')

describe.skipIf(CHROMIUM === undefined)('the dashboard in Chromium', () => {
  const dashboard = useDashboard()
  looksTests(dashboard)
  whatIfTests(dashboard)
  logFileTests(dashboard)
  shellTests(dashboard)
  learnTests(dashboard)
})
