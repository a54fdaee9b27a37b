// `npm run build`: updates generated sources, then compiles both published packages into their `dist` folders, the
// dashboard included.

import { build, installPackages } from './setup.mjs'

installPackages()
await import('./embed.mjs')
await import('./descriptors.mjs')
build()
