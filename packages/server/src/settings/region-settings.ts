// Settings of a node in a region: its name, and the shares of limits that regions share.

import { GLOBAL_DEADLINE_MS } from './deadlines.ts'
import { isRedisUrl, REDIS_URL_FIX } from './redis-url.ts'
import { readInteger, type SettingsTable } from './setting.ts'
import type { Settings } from './settings.ts'

type RegionSettings = Pick<
  Settings,
  'region' | 'regionWeights' | 'homeShare' | 'nextRegionWeights' | 'nextHomeShare' | 'globalRedis' | 'globalDeadlineMs'
>

const REGION_NAME = /^[a-z0-9][a-z0-9_-]{0,31}$/
const REGIONS_MAX = 64
const SHARE_FIX = 'give a number from 0 to 1 with at most six decimals'
const WEIGHTS_FIX =
  `give 1 to ${REGIONS_MAX} different regions with weights of at most six decimals, ` +
  'which add up to at most 1: eu=0.6,us=0.4'

export const REGION_SETTINGS: Pick<SettingsTable<Settings>, keyof RegionSettings> = {
  region: {
    flag: 'region',
    env: 'SLUICE_REGION',
    value: '<name>',
    help: 'Region of this node: rules with spread: global are shared with the other regions.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (REGION_NAME.test(text) ? text : undefined),
    fix: 'give 1 to 32 characters of a-z, 0-9, "_" and "-"',
    needs: ['redis', 'regionWeights', 'globalRedis'],
    conflict: ({ region = '', regionWeights, nextRegionWeights }) => {
      const isNamed = Object.hasOwn({ ...regionWeights, ...nextRegionWeights }, region)
      return isNamed ? undefined : 'give a region that --region-weights or --next-region-weights lists'
    },
  },
  regionWeights: {
    flag: 'region-weights',
    env: 'SLUICE_REGION_WEIGHTS',
    value: '<name=weight,…>',
    help: 'All regions and their weights, which split the home share of a limit: eu=0.6,us=0.4.',
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
    help: 'Share of a limit that is split by weight and stays usable in an isolated region; regions lease the rest.',
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
    help: 'Weights of a planned change: until it is complete, each region gets the smaller of its two shares.',
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
    help: 'Home share of a planned change.',
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
    help: 'How long a check waits for the global Redis when its region has no units left.',
    fallback: () => undefined,
    shownFallback: String(GLOBAL_DEADLINE_MS),
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
  const areUnique = new Set(weights.map(([name]) => name)).size === weights.length
  if (!(sum <= 1e6) || !areUnique || weights.length > REGIONS_MAX) return undefined
  return Object.fromEntries(weights) as Record<string, number> // none is undefined: the sum is a number
}
