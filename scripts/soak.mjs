// `npm run soak`: builds what is missing and runs the long proofs in this very process. Arguments are the soak's.

import { build, compile, installPackages, requirePrograms } from './setup.mjs'

installPackages()
requirePrograms(['redis-server'])
compile('fleet', build())
await import('../fleet/dist/soak/main.js')
