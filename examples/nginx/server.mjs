// An application, Sluice, and nginx in front of both: nginx.conf says how they go together.

import { runProxied } from '../proxied.mjs'

await runProxied('nginx', 'nginx.conf', ['nginx', '-p', '.', '-c', 'nginx.conf', '-e', 'stderr', '-g', 'daemon off;'])
