// `npm run fleet`: builds what is out of date and runs the fleet in this process, so that Ctrl-C and the exit code need
// no forwarding. Arguments go to the fleet.

import { build, compile, installPackages, requirePrograms } from './setup.mjs'

installPackages()
requirePrograms(['redis-server'])
compile('fleet', build())
await import('../fleet/dist/main.js')
