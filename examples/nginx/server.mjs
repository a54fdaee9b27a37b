// Starts an application, Sluice, and nginx in front of both, as nginx.conf describes.

import { runProxied } from '../proxied.mjs'

await runProxied('nginx', 'nginx.conf', ['nginx', '-p', '.', '-c', 'nginx.conf', '-e', 'stderr', '-g', 'daemon off;'])
