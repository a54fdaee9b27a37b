// Entry point of `sluice gateway`, and its banner.

import { VERSION } from '../package-facts.ts'
import { reachable, rulesLines } from '../process/banner.ts'
import { bannerFacts, type Program } from '../process/serve.ts'
import type { GatewaySettings } from './settings.ts'
import { type RunningGateway, startGateway } from './start.ts'

export const GATEWAY_PROGRAM: Program<GatewaySettings, RunningGateway> = { start: startGateway, banner }

function banner(gateway: RunningGateway, settings: GatewaySettings): string {
  const { routes, upstream } = settings
  const lines = routes.map(({ host = '', prefix, upstream: url }) => `  ${host}${prefix} → ${url.origin}`)
  if (upstream !== undefined)
    lines.push(`  ${routes.length === 0 ? 'All requests' : 'Other requests'} → ${upstream.origin}`)
  return [
    `Sluice ${VERSION} listens on ${gateway.address} as a gateway`,
    ...lines,
    `API, health and metrics: ${gateway.apiAddress}`,
    ...(gateway.grpcAddress === undefined ? [] : [`gRPC listens on ${gateway.grpcAddress}`]),
    ...rulesLines(bannerFacts(gateway)),
    '',
    'Try it:',
    '',
    `  curl -i ${settings.listenCert === undefined ? '' : '--insecure '}${reachable(gateway.address)}/`,
    '',
    '',
  ].join('\n')
}
