// `npm test`: from a fresh clone to the verdict of the whole gate. Arguments go to vitest.

import { build, installPackages, requirePrograms } from './setup.mjs'

installPackages()
requirePrograms()
build()
await import('./check.mjs')
