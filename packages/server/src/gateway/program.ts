// The gateway as the command runs it, and what a person sees at its start.

import { VERSION } from '../package-facts.ts'
import { reachable, rulesLines } from '../process/banner.ts'
import { bannerFacts, type Program } from '../process/serve.ts'
import type { GatewaySettings } from './settings.ts'
import { type RunningGateway, startGateway } from './start.ts'

export const GATEWAY_PROGRAM: Program<GatewaySettings, RunningGateway> = { start: startGateway, banner }

function banner(gateway: RunningGateway, settings: GatewaySettings): string {
  const { routes, upstream } = settings
  const ways = routes.map(({ host = '', prefix, upstream: url }) => `  ${host}${prefix} goes to ${url.origin}`)
  if (upstream !== undefined)
    ways.push(`  ${routes.length === 0 ? 'Everything' : 'The rest'} goes to ${upstream.origin}`)
  return [
    `Sluice ${VERSION} listens on ${gateway.address} as a gateway`,
    ...ways,
    `API, health and metrics: ${gateway.apiAddress}`,
    ...rulesLines(bannerFacts(gateway)),
    '',
    'Try it:',
    '',
    `  curl -i ${settings.listenCert === undefined ? '' : '--insecure '}${reachable(gateway.address)}/`,
    '',
    '',
  ].join('\n')
}
