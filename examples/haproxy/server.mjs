// Starts an application, Sluice, and HAProxy in front of both, as haproxy.cfg and sluice.lua describe.

import { runProxied } from '../proxied.mjs'

await runProxied('haproxy', 'haproxy.cfg', ['haproxy', '-q', '-f', 'haproxy.cfg'])
