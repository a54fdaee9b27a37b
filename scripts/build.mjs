// `npm run build`: updates generated sources, then compiles both published packages into their `dist` folders.

import { build, installPackages } from './setup.mjs'

installPackages()
await import('./embed.mjs')
build()
