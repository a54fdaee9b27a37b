// `npm run fleet`: builds what is missing and runs the fleet in this very process, so that Ctrl-C and the exit code are
// its own. Arguments are the fleet's.

import { build, compile, installPackages, requirePrograms } from './setup.mjs'

installPackages()
requirePrograms(['redis-server'])
compile('fleet', build())
await import('../fleet/dist/main.js')
