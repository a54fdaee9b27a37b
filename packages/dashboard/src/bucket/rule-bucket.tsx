// The bucket of one rule: its own limits and algorithm, with arrivals that the user chooses.

import { useEffect, useRef, useState } from 'preact/hooks'
import { type AlgorithmName, hasPermits } from 'sluice/algorithms'
import { Slider } from '../components/slider.tsx'
import { ABOUT } from './algorithms.ts'
import { arrivalsBetween } from './arrivals.ts'
import { BucketDrawing, LevelLine, RecentStrip } from './drawing.tsx'
import { Counts } from './figures.tsx'
import { type LimitSettings, Simulation, START_US } from './simulation.ts'
import { useClock } from './use-clock.ts'

type Props = { readonly algorithm: AlgorithmName; readonly limits: readonly LimitSettings[] }

/** Steps of the arrivals slider: tenths of the sustained rate, up to three times of it. */
const STEPS = 30

export function RuleBucket({ algorithm, limits }: Props) {
  const [first] = limits
  const [isRunning, setRunning] = useState(true)
  const [tenths, setTenths] = useState(13)
  const shape = JSON.stringify([algorithm, limits])
  const lab = useRef({ simulation: new Simulation(algorithm, limits), nowUs: START_US })
  const restart = () => {
    lab.current = { simulation: new Simulation(algorithm, limits), nowUs: START_US }
  }
  useEffect(restart, [shape])
  const sustained = first === undefined ? 1 : first.limit / (hasPermits({ algorithm }) ? 1 : first.windowSeconds)
  // A rule of 100 per hour would show nothing in a minute: time runs faster for slow rules.
  const speed = Math.max(1, Math.min(3600, Math.round(2 / Math.max(sustained, 1e-6))))
  const perSecond = (sustained * tenths) / 10
  useClock(isRunning && first !== undefined, (us) => {
    const { simulation, nowUs } = lab.current
    const toUs = nowUs + us * speed
    const settings = { pattern: 'random' as const, perSecond, limit: 0, windowSeconds: 1 }
    for (const atUs of arrivalsBetween(nowUs, toUs, settings, Math.random)) simulation.request(atUs)
    simulation.advance(toUs)
    lab.current.nowUs = toUs
  })
  const { simulation, nowUs } = lab.current
  const levels = simulation.levelsAt(nowUs)
  const [tightest] = [...levels].sort((a, b) => a.free / a.capacity - b.free / b.capacity)
  if (tightest === undefined) return <p class="muted">The rule has no limit: every request is admitted.</p>
  return (
    <div class="rule-bucket">
      <BucketDrawing {...tightest} recent={simulation.recent} nowUs={nowUs} />
      <div class="rule-bucket-side">
        <Slider
          label="Arrivals"
          min={0}
          max={STEPS}
          value={tenths}
          text={`${perSecondText(perSecond)}, ${tenths * 10} % of the limit`}
          onValue={setTenths}
        />
        <Counts simulation={simulation} />
        <RecentStrip recent={simulation.recent} />
        <LevelLine simulation={simulation} />
        <p class="muted">
          {ABOUT[algorithm].title}: {ABOUT[algorithm].about}
          {speed > 1 && ` Time runs ${speed} times faster here.`}
        </p>
        <p class="row-actions">
          <button type="button" aria-pressed={!isRunning} onClick={() => setRunning(!isRunning)}>
            {isRunning ? 'Pause' : 'Resume'}
          </button>
          <button type="button" onClick={restart}>
            Start over
          </button>
        </p>
      </div>
    </div>
  )
}

const DIGITS = new Intl.NumberFormat('en', { maximumSignificantDigits: 2 })

function perSecondText(perSecond: number): string {
  return perSecond >= 1 || perSecond === 0 ? `${DIGITS.format(perSecond)}/s` : `${DIGITS.format(perSecond * 60)}/min`
}
