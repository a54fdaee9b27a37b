// `npm test`: installs and builds what is missing, then runs the whole gate. Arguments go to vitest.

import { runGate } from './gate.mjs'
import { build, installPackages, requirePrograms } from './setup.mjs'

installPackages()
requirePrograms()
build()
await runGate({ servers: true, args: process.argv.slice(2) })
