// `npm run screenshots`: takes the pictures of the documentation again, from a real service under load.

import { bin, build, installPackages, requirePrograms, runInForeground } from './setup.mjs'

installPackages()
requirePrograms(['redis-server', 'postgres', 'chromium-headless-shell'])
build()
process.env.SLUICE_SCREENSHOTS = 'docs'
process.exitCode = await runInForeground(bin('vitest'), ['run', 'packages/dashboard/test/screenshots.test.ts'])
