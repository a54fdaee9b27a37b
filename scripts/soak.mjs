// `npm run soak`: builds what is out of date and runs the soak tests in this process. Arguments go to the soak tests;
// without any, the ClickHouse tests also run on a current engine.

import { testOnCurrentClickHouse } from './chdb.mjs'
import { build, compile, installPackages, requirePrograms } from './setup.mjs'

installPackages()
requirePrograms(['redis-server'])
compile('fleet', build())
const passed = process.argv.length > 2 || testOnCurrentClickHouse()
await import('../fleet/dist/soak/main.js')
if (!passed) process.exitCode = 1
