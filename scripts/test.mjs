// `npm test`: from a fresh clone to the verdict of the whole gate. Arguments go to vitest.

import { build, installPackages, requireRedis } from './setup.mjs'

installPackages()
requireRedis()
build()
await import('./check.mjs')
