// Settings that put a node into a region: where it is, and what it has of limits that regions share.

import { isRedisUrl, REDIS_URL_FIX } from '../counters/redis-url.ts'
import { readInteger, type Settings, type SettingsTable } from './settings.ts'

type RegionSettings = Pick<
  Settings,
  'region' | 'regionWeights' | 'homeShare' | 'nextRegionWeights' | 'nextHomeShare' | 'globalRedis' | 'globalDeadlineMs'
>

const REGION_NAME = /^[a-z0-9][a-z0-9_-]{0,31}$/
const REGIONS_MAX = 64
const SHARE_FIX = 'give a number from 0 to 1, with six decimals at most'
const WEIGHTS_FIX =
  `name 1 to ${REGIONS_MAX} regions, each once and with a weight of six decimals at most, ` +
  'which together are 1 or less: eu=0.6,us=0.4'

export const REGION_SETTINGS: Pick<SettingsTable<Settings>, keyof RegionSettings> = {
  region: {
    flag: 'region',
    env: 'SLUICE_REGION',
    value: '<name>',
    help: 'The region this node is in: rules with spread: global are shared with the others.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (REGION_NAME.test(text) ? text : undefined),
    fix: 'give 1 to 32 characters of a-z, 0-9, "_" and "-"',
    needs: ['redis', 'regionWeights', 'globalRedis'],
    clash: ({ region = '', regionWeights, nextRegionWeights }) => {
      const isNamed = Object.hasOwn({ ...regionWeights, ...nextRegionWeights }, region)
      return isNamed ? undefined : 'give one that --region-weights or --next-region-weights names'
    },
  },
  regionWeights: {
    flag: 'region-weights',
    env: 'SLUICE_REGION_WEIGHTS',
    value: '<name=weight,…>',
    help: 'All regions, and how the home share of a limit is split between them: eu=0.6,us=0.4.',
    fallback: () => undefined,
    shownFallback: '',
    read: readWeights,
    fix: WEIGHTS_FIX,
    needs: 'region',
  },
  homeShare: {
    flag: 'home-share',
    env: 'SLUICE_HOME_SHARE',
    value: '<share>',
    help: 'How much of a limit is split by weight, and kept when a region is cut off; regions lease the rest.',
    fallback: () => undefined,
    shownFallback: '0.1',
    read: readShare,
    fix: SHARE_FIX,
    needs: 'region',
  },
  nextRegionWeights: {
    flag: 'next-region-weights',
    env: 'SLUICE_NEXT_REGION_WEIGHTS',
    value: '<name=weight,…>',
    help: 'Weights that are to come: until they replace the others, each region has the smaller part of both.',
    fallback: () => undefined,
    shownFallback: '',
    read: readWeights,
    fix: WEIGHTS_FIX,
    needs: 'region',
  },
  nextHomeShare: {
    flag: 'next-home-share',
    env: 'SLUICE_NEXT_HOME_SHARE',
    value: '<share>',
    help: 'The same for the home share.',
    fallback: () => undefined,
    shownFallback: '',
    read: readShare,
    fix: SHARE_FIX,
    needs: 'region',
  },
  globalRedis: {
    flag: 'global-redis',
    env: 'SLUICE_GLOBAL_REDIS_URL',
    value: '<url>',
    help: 'Redis that all regions lease from.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (isRedisUrl(text) ? text : undefined),
    fix: REDIS_URL_FIX,
    needs: 'region',
    secret: true,
  },
  globalDeadlineMs: {
    flag: 'global-deadline-ms',
    env: 'SLUICE_GLOBAL_DEADLINE_MS',
    value: '<ms>',
    help: 'How long a check may wait for the global Redis, if nothing is left in its region.',
    fallback: () => undefined,
    shownFallback: '250',
    read: (text) => readInteger(text, 1, 10_000),
    fix: 'give milliseconds from 1 to 10000',
    needs: 'region',
  },
}

function readShare(text: string): number | undefined {
  const value = /^\d(\.\d{1,6})?$/.test(text) ? Number(text) : Number.NaN
  return value <= 1 ? value : undefined
}

function readWeights(text: string): Readonly<Record<string, number>> | undefined {
  const pairs = text.split(',').map((pair) => pair.split('='))
  const weights = pairs.map(([name = '', weight = '', ...more]) => {
    return [name, REGION_NAME.test(name) && more.length === 0 ? readShare(weight) : undefined] as const
  })
  const sum = weights.reduce((total, [, weight]) => total + Math.round((weight ?? Number.NaN) * 1e6), 0)
  const isOnce = new Set(weights.map(([name]) => name)).size === weights.length
  if (!(sum <= 1e6) || !isOnce || weights.length > REGIONS_MAX) return undefined
  return Object.fromEntries(weights) as Record<string, number> // none is undefined, or there were no sum
}
