// Opens the store of a node in a region: combines the regional and the global store.

import type { RegionStore } from 'sluice/regions'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { GLOBAL_DEADLINE_MS } from '../settings/deadlines.ts'
import type { Settings } from '../settings/settings.ts'
import { CONNECT_MS_MAX, IDLE_PROBE_MS, type OpenStore, requireSlotGroups, slotGroupsFor } from './open-store.ts'
import { probe } from './probe.ts'
import { redisClient } from './redis-client.ts'

type RegionSettings = Pick<
  Settings,
  | 'region'
  | 'regionWeights'
  | 'homeShare'
  | 'nextRegionWeights'
  | 'nextHomeShare'
  | 'globalRedis'
  | 'globalDeadlineMs'
  | 'redisSlotGroups'
>

/** Name of the global Redis in the labels of metrics, as in `--global-redis`. */
const GLOBAL_STORE = 'global-redis'

/** The node starts even if the global Redis is unreachable: the region then uses its homes only. */
export async function openRegion(
  settings: RegionSettings,
  regional: OpenStore,
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
  if (name === undefined || weights === undefined || url === undefined) return regional
  const opened: { region?: RegionStore } = {}
  const [{ redisStore }, { regionStore }] = await Promise.all([import('sluice/redis'), import('sluice/regions')])
  const changing = nextRegionWeights !== undefined || nextHomeShare !== undefined
  const next = { weights: nextRegionWeights ?? weights, homeShare: nextHomeShare ?? homeShare }
  const global = redisStore(await redisClient(url, CONNECT_MS_MAX), {
    leases: false,
    ...slotGroupsFor([url], settings),
    deadlineMs: settings.globalDeadlineMs ?? GLOBAL_DEADLINE_MS,
    idleProbeMs: IDLE_PROBE_MS,
    onBatch: (requests, seconds, { server }) =>
      metrics.storeAnswered(requests, seconds, { store: GLOBAL_STORE, server }),
    onError: ({ code }, { server }) => metrics.storeFailed(code, { store: GLOBAL_STORE, server }),
    onTransition: ({ state, afterMs }) => {
      const after_ms = Math.round(afterMs)
      log.event(state === 'open' ? 'global_breaker_opened' : 'global_breaker_closed', { region: name, after_ms })
      if (opened.region !== undefined) void probe(opened.region, { spread: true }) // tells it, without traffic too
    },
  })
  try {
    const shares = { weights, homeShare }
    const nextShares = changing ? next : undefined
    const region = regionStore({ name, shares, nextShares, regional: regional.store, global })
    opened.region = region
    metrics.watchStore(region)
    metrics.watchRedis(global, GLOBAL_STORE)
    await global.ready()
    requireSlotGroups(await global.info())
    const failure = () => {
      // Without requests, only a probe detects the recovery.
      if (region.isIsolated) void probe(region, { spread: true })
      return regional.failure()
    }
    return { ...regional, store: region, region, failure }
  } catch (error) {
    await Promise.all([global.close(), regional.store.close()]) // open connections would keep the process alive
    throw error
  }
}
