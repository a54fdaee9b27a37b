import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import type { ApiHotKey } from '../src/fleet/api-hot-key.ts'
import { CheckSamples, NodeTotals, type Totals } from '../src/webhooks/check-samples.ts'
import { NEW_HOT_KEYS, NewHotKeys } from '../src/webhooks/new-hot-keys.ts'
import { NodeAlerts, type ProcessFigures, SAMPLE_MS } from '../src/webhooks/node-alerts.ts'
import { mergedTopRules, RecentRefusals, withoutDemo } from '../src/webhooks/recent-refusals.ts'
import { SinkOutages, type SinkState } from '../src/webhooks/sink-outages.ts'
import { BURN, SLOS } from '../src/webhooks/slo-burn.ts'
import type { WebhookEvent } from '../src/webhooks/webhooks.ts'

const MINUTE = 60_000 / SAMPLE_MS
const NONE: Totals = { decided: 0, refused: 0, byPolicy: 0, slow: 0, unitsCharged: 0, unitsExpired: 0 }

/** Traffic of one sample, repeated. */
type Phase = Partial<Totals> & { readonly samples: number; readonly rulesAgeSeconds?: number }
type Sent = { readonly sample: number; readonly type: string; readonly data: WebhookEvent['data'] }

/** Figures of a node with one process; the first sample is the baseline. */
function eventsOf(...phases: readonly Phase[]): Sent[] {
  const alerts = new NodeAlerts()
  const sent: Sent[] = []
  let totals = NONE
  let sample = 0
  const take = (rulesAgeSeconds = 0) => {
    const events = alerts.next([figures({ totals, rulesAgeSeconds })], sample * SAMPLE_MS)
    for (const { type, data } of events) sent.push({ sample, type, data })
    sample += 1
  }
  take()
  for (const { samples, rulesAgeSeconds, ...traffic } of phases) {
    for (let done = 0; done < samples; done += 1) {
      totals = plus(totals, { ...NONE, ...traffic })
      take(rulesAgeSeconds)
    }
  }
  return sent
}

function plus(one: Totals, other: Totals): Totals {
  return {
    decided: one.decided + other.decided,
    refused: one.refused + other.refused,
    byPolicy: one.byPolicy + other.byPolicy,
    slow: one.slow + other.slow,
    unitsCharged: one.unitsCharged + other.unitsCharged,
    unitsExpired: one.unitsExpired + other.unitsExpired,
  }
}

function figures(some: Partial<ProcessFigures>): ProcessFigures {
  return { process: 'a', totals: NONE, topRules: [], hotKeys: [], sinks: [], rulesAgeSeconds: 0, ...some }
}

const typesOf = (events: readonly { readonly type: string }[]) => events.map(({ type }) => type)

describe('refusals.spike', () => {
  const calm = { samples: 11 * MINUTE, decided: 1000, refused: 20 }

  test.each<[string, Phase[], string[]]>([
    ['five times the share, ten points more', [calm, { samples: 6, decided: 1000, refused: 200 }], ['refusals.spike']],
    ['an even share', [calm, calm], []],
    ['four times the share', [calm, { samples: 60, decided: 1000, refused: 80 }], []],
    ['five times a tiny share, but few points', [calm, { samples: 60, decided: 1000, refused: 110 }], []],
    [
      'more points, but less than five times',
      [
        { ...calm, refused: 200 },
        { samples: 60, decided: 1000, refused: 900 },
      ],
      [],
    ],
    [
      'fewer than 100 refused checks',
      [
        { ...calm, decided: 10, refused: 0 },
        { samples: 60, decided: 16, refused: 16 },
      ],
      [],
    ],
    ['a node without traffic before', [{ samples: 66 }, { samples: 6, decided: 20, refused: 20 }], ['refusals.spike']],
    ['a node that has just started', [{ samples: 11, decided: 1000, refused: 900 }], []],
    ['a node that always refused as much', [{ samples: 100, decided: 1000, refused: 900 }], []],
  ])('%s', (_name, phases, types) => {
    expect(typesOf(eventsOf(...phases))).toEqual(types)
  })

  test('is one event with its figures, and refusals.normal when it ends', () => {
    const sent = eventsOf(calm, { samples: 60, decided: 1000, refused: 500 }, { ...calm, samples: 10 })
    expect(sent).toEqual([
      {
        sample: 66 + 2,
        type: 'refusals.spike',
        data: { refused_share: 0.18, baseline_share: 0.02, refused: 1080, checks: 6000, top_rules: [] },
      },
      {
        sample: 66 + 60 + 6,
        type: 'refusals.normal',
        data: { refused_share: 0.02, baseline_share: 0.02, seconds: 640 },
      },
    ])
  })

  test('a share around the threshold sends one event', () => {
    const around = Array.from({ length: 30 }, (_, index) => ({
      samples: 3,
      decided: 1000,
      refused: index % 2 ? 160 : 90,
    }))
    expect(typesOf(eventsOf(calm, ...around))).toEqual(['refusals.spike'])
  })

  test('a share that stays counts as normal after an hour, and the next spike is reported', () => {
    const raised = { samples: 70 * MINUTE, decided: 1000, refused: 150 }
    const types = typesOf(eventsOf(calm, raised, { samples: 6, decided: 1000, refused: 1000 }))
    expect(types).toEqual(['refusals.spike', 'refusals.normal', 'refusals.spike'])
  })

  test('counts no refusals of demo traffic', () => {
    const counts = new Map([
      ['login', 3],
      ['demo_traffic_messages', 500],
      ['demo_traffic_login', 20],
    ])
    const { totals, refusedByRule } = withoutDemo({ ...NONE, decided: 1000, refused: 523 }, counts)
    expect(totals).toEqual({ ...NONE, decided: 1000, refused: 3 })
    expect([...refusedByRule]).toEqual([['login', 3]])
  })

  test('names the rules that refused the most within the last minute', () => {
    const refusals = new RecentRefusals(2)
    for (const count of [5, 10, 20, 40])
      refusals.add(
        new Map([
          ['a', count],
          ['b', 30],
        ]),
      )
    expect(
      refusals.top(
        new Map([
          ['a', 40],
          ['b', 30],
          ['c', 7],
        ]),
      ),
    ).toEqual([
      { rule_id: 'a', refused: 30 },
      { rule_id: 'c', refused: 7 },
    ])
    const many = Array.from({ length: 9 }, (_, index) => ({ rule_id: `r${index}`, refused: index + 1 }))
    expect(mergedTopRules([many, [{ rule_id: 'r0', refused: 100 }]])).toEqual([
      { rule_id: 'r0', refused: 101 },
      ...[8, 7, 6, 5].map((index) => ({ rule_id: `r${index}`, refused: index + 1 })),
    ])
  })
})

describe('slo.burn', () => {
  const good = { decided: 1000 }

  test.each<[string, Phase[], string[]]>([
    ['all decisions in budget', [{ ...good, samples: 400, slow: 10 }], []],
    ['latency 14.4 times over budget', [{ ...good, samples: 40, slow: 145 }], ['latency']],
    ['availability 14.4 times over budget', [{ decided: 10_000, samples: 40, byPolicy: 15 }], ['availability']],
    ['both at once', [{ ...good, samples: 40, byPolicy: 500, slow: 500 }], ['availability', 'latency']],
    ['latency just below', [{ ...good, samples: 400, slow: 144 }], []],
    ['less than a decision a second', [{ decided: 9, samples: 400, byPolicy: 9, slow: 9 }], []],
    ['stale rules for a seventh of an hour', [{ samples: 52, rulesAgeSeconds: 61 }], ['propagation']],
    ['stale rules for less', [{ samples: 51, rulesAgeSeconds: 61 }], []],
    ['rules confirmed within a minute', [{ samples: 400, rulesAgeSeconds: 60 }], []],
    ['drift for a seventh of an hour', [{ samples: 52, unitsCharged: 1000, unitsExpired: 51 }], ['drift']],
    ['drift in its objective', [{ samples: 400, unitsCharged: 1000, unitsExpired: 50 }], []],
    ['drift of less than ten units a second', [{ samples: 400, unitsCharged: 100, unitsExpired: 100 }], []],
    [
      'five bad minutes in a good hour',
      [
        { ...good, samples: 360 },
        { ...good, samples: 6, slow: 1000 },
      ],
      [],
    ],
    [
      'an old problem',
      [
        { ...good, samples: 30, slow: 100 },
        { ...good, samples: 60 },
      ],
      [],
    ],
  ])('%s', (_name, phases, slos) => {
    const burns = eventsOf(...phases).filter(({ type }) => type === 'slo.burn')
    expect(burns.map(({ data }) => data.slo)).toEqual(slos)
  })

  test('has its burn rates, and slo.recovered follows once five minutes are well below the threshold', () => {
    const bad = { ...good, samples: 360, slow: 200 }
    const [burn, recovered, ...others] = eventsOf(bad, { ...good, samples: 40, slow: 79 }, { ...good, samples: 40 })
    expect(burn).toMatchObject({ type: 'slo.burn', data: { slo: 'latency', burn_rate_1h: 20, burn_rate_5m: 20 } })
    expect(recovered).toMatchObject({ type: 'slo.recovered', data: { slo: 'latency', burn_rate_5m: 7.1 } })
    expect(recovered?.sample).toBeGreaterThan(400)
    expect(others).toEqual([])
  })

  test('of an objective over time has the bad seconds of the hour', () => {
    const [burn, recovered] = eventsOf({ samples: 52, rulesAgeSeconds: 61 }, { samples: 40 })
    expect(burn?.data).toEqual({ slo: 'propagation', burn_rate_1h: 14.4, burn_rate_5m: 100, bad_seconds: 520 })
    expect(recovered).toMatchObject({ type: 'slo.recovered', data: { slo: 'propagation', burn_rate_5m: 6.7 } })
  })

  test('uses the thresholds of the alerts', () => {
    const alerts = readFileSync(new URL('../../../deploy/prometheus/alerts.rules.yaml', import.meta.url), 'utf8')
    for (const [slo, { budget }] of Object.entries(SLOS)) {
      for (const window of ['1h', '5m']) {
        expect(alerts).toContain(`job:sluice_${slo}:error_ratio_rate${window} > ${BURN.rate} * ${budget}`)
      }
    }
    expect(alerts).toContain(`and job:sluice_decisions:rate1h > ${BURN.decisionsPerSecond}\n`)
  })
})

describe('hot_key.found', () => {
  const key = (key_hash: string): ApiHotKey => ({
    rule_id: 'r',
    name: 'default',
    key_hash,
    checks_per_second: 99.6,
    share: 0.12345,
  })
  const hashes = (events: readonly WebhookEvent[]) => events.map(({ data }) => data.key_hash)

  test('is sent once for a key that stays hot, and again after ten cool minutes', () => {
    const watch = new NewHotKeys()
    expect(watch.next([key('old')], 0)).toEqual([])
    expect(watch.next([key('old'), key('new')], SAMPLE_MS)).toEqual([
      {
        type: 'hot_key.found',
        data: { rule_id: 'r', name: 'default', key_hash: 'new', checks_per_second: 100, share: 0.123, left_out: 0 },
      },
    ])
    expect(watch.next([key('old'), key('new')], 2 * SAMPLE_MS)).toEqual([])
    expect(watch.next([key('new')], 2 * SAMPLE_MS + NEW_HOT_KEYS.forgetMs)).toEqual([])
    expect(hashes(watch.next([key('old'), key('new')], 3 * SAMPLE_MS + NEW_HOT_KEYS.forgetMs))).toEqual(['old'])
  })

  test('at most five a minute: the others are counted, and sent later if they are still hot', () => {
    const watch = new NewHotKeys()
    watch.next([], 0)
    const many = Array.from({ length: 12 }, (_, index) => key(`k${index}`))
    const first = watch.next(many, SAMPLE_MS)
    expect(hashes(first)).toEqual(['k0', 'k1', 'k2', 'k3', 'k4'])
    expect(first.map(({ data }) => data.left_out)).toEqual([7, 7, 7, 7, 7])
    expect(watch.next(many, 2 * SAMPLE_MS)).toEqual([])
    expect(hashes(watch.next(many.slice(0, 7), SAMPLE_MS + 60_000))).toEqual(['k5', 'k6'])
  })

  test('remembers a bounded number of keys', () => {
    const watch = new NewHotKeys()
    watch.next(
      Array.from({ length: NEW_HOT_KEYS.rememberedMax + 1 }, (_, index) => key(`k${index}`)),
      0,
    )
    expect(hashes(watch.next([key('k0'), key('k1')], 1))).toEqual(['k0'])
  })
})

describe('sink.down', () => {
  const sink = (isUp: boolean, pending = 5): SinkState => ({ name: 'kafka', isUp, pending, dropped: 1 })

  test('is sent once, after ten seconds, and sink.up when all workers store again', () => {
    const outages = new SinkOutages()
    expect(outages.next([sink(true), sink(true)], 0)).toEqual([])
    expect(outages.next([sink(true), sink(false)], 10_000)).toEqual([])
    expect(outages.next([sink(true), sink(false)], 20_000)).toEqual([
      { type: 'sink.down', data: { sink: 'kafka', pending: 10, dropped: 2 } },
    ])
    expect(outages.next([sink(false), sink(true)], 30_000)).toEqual([])
    expect(outages.next([sink(true, 0), sink(true, 0)], 40_000)).toEqual([
      { type: 'sink.up', data: { sink: 'kafka', pending: 0, dropped: 2, seconds: 30 } },
    ])
  })

  test('a failure that ends within ten seconds sends nothing', () => {
    const outages = new SinkOutages()
    const states = [true, false, true, false, true]
    expect(states.flatMap((isUp, index) => outages.next([sink(isUp)], index * SAMPLE_MS))).toEqual([])
  })

  test('sinks are reported separately', () => {
    const outages = new SinkOutages()
    const both = [sink(false), { ...sink(false), name: 'clickhouse' }]
    outages.next(both, 0)
    expect(outages.next(both, 10_000).map(({ data }) => data.sink)).toEqual(['kafka', 'clickhouse'])
  })
})

describe('totals of a node', () => {
  const of = (process: string, decided: number) => ({ process, totals: { ...NONE, decided, refused: decided } })
  type Processes = readonly ReturnType<typeof of>[]

  test.each<[string, Processes[], number[]]>([
    [
      'add up over workers, from the first sample on',
      [
        [of('a', 5), of('b', 7)],
        [of('a', 6), of('b', 9)],
      ],
      [0, 3],
    ],
    ['a replaced worker starts at 0', [[of('a', 500)], [of('b', 3)], [of('b', 4)]], [0, 3, 4]],
    [
      'a worker that does not answer once',
      [[of('a', 5), of('b', 7)], [of('a', 6)], [of('a', 6), of('b', 9)]],
      [0, 1, 3],
    ],
    ['a counter that starts again', [[of('a', 500)], [of('a', 600)], [of('a', 20)]], [0, 100, 120]],
  ])('%s', (_name, samples, sums) => {
    const totals = new NodeTotals()
    expect(samples.map((all) => totals.add(all).refused)).toEqual(sums)
  })

  test('a window is measured from the last sample before it, or from the first sample', () => {
    const samples = new CheckSamples(100)
    expect(samples.increase(0, 10)).toEqual({ ...NONE, spanMs: 0 })
    for (let ms = 0; ms <= 300; ms += 10) samples.add({ ...NONE, decided: ms }, ms)
    expect(samples.increase(245, 300)).toMatchObject({ decided: 60, spanMs: 60 })
    expect(samples.increase(0, 300)).toMatchObject({ decided: 100, spanMs: 100 })
  })
})
