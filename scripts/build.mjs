// `npm run build`: brings generated sources up to date, then compiles both published packages into their `dist`.

import { build, installPackages } from './setup.mjs'

installPackages()
await import('./embed.mjs')
build()
