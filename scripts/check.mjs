// `npm run check`: runs the gate without the tests that start servers. Arguments go to vitest.

import { runGate } from './gate.mjs'

await runGate({ servers: false, args: process.argv.slice(2) })
