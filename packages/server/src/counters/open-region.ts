// Settings → the store of a node that is in a region: the one of the region and the global one, as one store.

import type { Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { Settings } from '../settings/settings.ts'
import { CONNECT_MS_MAX, type OpenStore } from './open-store.ts'
import { probe } from './probe.ts'
import { redisClient } from './redis-url.ts'

type RegionSettings = Pick<
  Settings,
  'region' | 'regionWeights' | 'homeShare' | 'nextRegionWeights' | 'nextHomeShare' | 'globalRedis' | 'globalDeadlineMs'
>

/** Regions are far apart, and few checks wait for the global Redis. */
const DEADLINE_MS = 250

/** The global Redis may be down, as the other one may: then the region has its homes. */
export async function openRegion(
  settings: RegionSettings,
  opened: OpenStore,
  metrics: Metrics,
  log: Log,
): Promise<OpenStore> {
  const {
    region: name,
    regionWeights: weights,
    homeShare,
    globalRedis: url,
    nextRegionWeights,
    nextHomeShare,
  } = settings
  if (name === undefined || weights === undefined || url === undefined) return opened
  const [{ redisStore }, { regionStore }] = await Promise.all([import('sluice/redis'), import('sluice/regions')])
  const changing = nextRegionWeights !== undefined || nextHomeShare !== undefined
  const next = { weights: nextRegionWeights ?? weights, homeShare: nextHomeShare ?? homeShare }
  const global = redisStore(await redisClient(url, CONNECT_MS_MAX), {
    leases: false,
    deadlineMs: settings.globalDeadlineMs ?? DEADLINE_MS,
    onTransition: ({ state, afterMs }) => {
      const after_ms = Math.round(afterMs)
      if (state === 'open')
        log.error({ region: name, after_ms }, 'circuit breaker opened for the global redis; homes only')
      else log.info({ region: name, after_ms }, 'circuit breaker closed for the global redis')
    },
  })
  try {
    const shares = { weights, homeShare }
    const nextShares = changing ? next : undefined
    const region = regionStore({ name, shares, nextShares, regional: opened.store, global })
    metrics.watchStore(region)
    await global.ready()
    const failure = () => {
      // Without requests nobody would notice that it works again.
      if (region.isCutOff) void probe(region, { spread: true })
      return opened.failure()
    }
    return { ...opened, store: region, region, failure }
  } catch (error) {
    await Promise.all([global.close(), opened.store.close()]) // or their connections would keep the process alive
    throw error
  }
}
