// An application, Sluice, and HAProxy in front of both: haproxy.cfg and sluice.lua say how they go together.

import { runProxied } from '../proxied.mjs'

await runProxied('haproxy', 'haproxy.cfg', ['haproxy', '-q', '-f', 'haproxy.cfg'])
