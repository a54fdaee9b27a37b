// Learn and try: a simulator that runs the library's own algorithms in the browser. Needs neither a session nor data.

import { useEffect, useRef, useState } from 'preact/hooks'
import { ALGORITHM_NAMES, ALGORITHMS, type AlgorithmName, hasPermits } from 'sluice/algorithms'
import { ABOUT } from '../../bucket/algorithms.ts'
import { arrivalsBetween, PATTERNS, type Pattern } from '../../bucket/arrivals.ts'
import { BucketDrawing, LevelLine, RecentStrip } from '../../bucket/drawing.tsx'
import { Counts, RecentList } from '../../bucket/figures.tsx'
import { Simulation, START_US } from '../../bucket/simulation.ts'
import { useClock } from '../../bucket/use-clock.ts'
import { SelectField } from '../../components/field.tsx'
import { PageHead, Panel } from '../../components/panel.tsx'
import { Slider } from '../../components/slider.tsx'
import { percent } from '../../format.ts'
import { useQuery } from '../../location.ts'
import { BOUNDS, LESSONS, queryOf, type Settings, settingsOf } from './settings.ts'
import '../../bucket/bucket.css'
import './learn.css'

const BURST_COUNT = 10
const BURST_GAP_US = 2000

type Lab = { readonly simulations: ReadonlyMap<AlgorithmName, Simulation>; nowUs: number }

/** All algorithms with the same limit, from an unused bucket. */
function newLab({ limit, window, burst }: Settings): Lab {
  const of = (name: AlgorithmName) => ({
    limit,
    windowSeconds: window,
    ...(ALGORITHMS[name].burst && { burst }),
  })
  const simulations = new Map(ALGORITHM_NAMES.map((name) => [name, new Simulation(name, [of(name)])]))
  return { simulations, nowUs: START_US }
}

export function Page() {
  const [query, setQuery] = useQuery()
  const [settings, setSettings] = useState(() => settingsOf(query))
  const [isRunning, setRunning] = useState(true)
  const { limit, window, burst } = settings
  const lab = useRef<Lab>(newLab(settings))
  const restart = () => {
    lab.current = newLab(settings)
  }
  useEffect(restart, [limit, window, burst, settings.pattern === 'edges'])
  useClock(isRunning, (us) => run(lab.current, us, settings))
  const [, render] = useState(0)
  const change = (patch: Partial<Settings>) => setSettings((old) => ({ ...old, ...patch }))
  const commit = (patch: Partial<Settings>) => {
    change(patch)
    setQuery(queryOf({ ...settings, ...patch }))
  }
  const main = lab.current.simulations.get(settings.algorithm) as Simulation // the map has every algorithm
  return (
    <>
      <PageHead title="Learn and try">
        <button type="button" aria-pressed={!isRunning} onClick={() => setRunning(!isRunning)}>
          {isRunning ? 'Pause' : 'Resume'}
        </button>
        <button
          type="button"
          onClick={() => {
            restart()
            render((count) => count + 1)
          }}
        >
          Start over
        </button>
      </PageHead>
      <p class="learn-intro">
        A rate limiter decides for each request whether it fits. Move the sliders: the bucket below runs the same code
        as the service, for one client.
      </p>
      <div class="learn-grid">
        <Controls settings={settings} change={change} commit={commit} />
        <BucketPanel simulation={main} nowUs={lab.current.nowUs} settings={settings} />
        <Panel title="Requests" note={<BudgetNote settings={settings} />}>
          <div class="learn-figures">
            <Counts simulation={main} />
            <RecentStrip recent={main.recent} />
            <h3>Recent requests</h3>
            <RecentList simulation={main} />
            <button type="button" onClick={() => burstOf(lab.current)}>
              Send {BURST_COUNT} at once
            </button>
          </div>
        </Panel>
      </div>
      <Lessons onTry={commit} onStart={restart} />
      <SideBySide lab={lab.current} selected={settings.algorithm} onSelect={(algorithm) => commit({ algorithm })} />
    </>
  )
}

function run(lab: Lab, us: number, { pattern, arrivals, limit, window }: Settings): void {
  const toUs = lab.nowUs + us
  const settings = { pattern, perSecond: arrivals, limit, windowSeconds: window }
  const times = arrivalsBetween(lab.nowUs, toUs, settings, Math.random)
  for (const simulation of lab.simulations.values()) {
    for (const atUs of times) simulation.request(atUs)
    simulation.advance(toUs)
  }
  lab.nowUs = toUs
}

function burstOf(lab: Lab): void {
  for (let count = 0; count < BURST_COUNT; count++) {
    lab.nowUs += BURST_GAP_US
    for (const simulation of lab.simulations.values()) simulation.request(lab.nowUs)
  }
}

type Change = (patch: Partial<Settings>) => void

function Controls({
  settings,
  change,
  commit,
}: {
  readonly settings: Settings
  readonly change: Change
  readonly commit: Change
}) {
  const { algorithm, pattern, limit, window, burst, arrivals } = settings
  const slider = (name: keyof typeof BOUNDS, label: string, text: string, disabled = false) => (
    <Slider
      label={label}
      {...BOUNDS[name]}
      value={settings[name]}
      text={text}
      disabled={disabled}
      onValue={(value) => change({ [name]: value })}
      onCommit={(value) => commit({ [name]: value })}
    />
  )
  const titles = Object.fromEntries(ALGORITHM_NAMES.map((name) => [name, ABOUT[name].title]))
  const hasBurst = ALGORITHMS[algorithm].burst
  return (
    <Panel title="Limit and traffic">
      <div class="learn-controls">
        <SelectField
          label="Algorithm"
          hint={ABOUT[algorithm].about}
          value={algorithm}
          options={titles}
          onValue={(value) => commit({ algorithm: value as AlgorithmName })}
        />
        {slider('limit', 'Rate', `${limit} per window`)}
        {slider('window', 'Window', `${window} s`)}
        {slider('burst', 'Burst', hasBurst ? `${burst} units` : 'not used', !hasBurst)}
        {slider('arrivals', 'Arrivals', pattern === 'edges' ? 'at the edges' : `${arrivals}/s`, pattern === 'edges')}
        <SelectField
          label="Arrival pattern"
          value={pattern}
          options={PATTERNS}
          onValue={(value) => commit({ pattern: value as Pattern })}
        />
      </div>
    </Panel>
  )
}

type BucketPanelProps = { readonly simulation: Simulation; readonly nowUs: number; readonly settings: Settings }

function BucketPanel({ simulation, nowUs, settings: { algorithm, limit, window } }: BucketPanelProps) {
  const { title, unit, refill } = ABOUT[algorithm]
  const [level = { free: 0, capacity: 0 }] = simulation.levelsAt(nowUs)
  return (
    <Panel title={title} note={refill(limit, window)}>
      <BucketDrawing {...level} recent={simulation.recent} nowUs={nowUs} />
      <p class="bucket-caption">
        <strong class="num">
          {level.free.toFixed(1)} / {level.capacity}
        </strong>{' '}
        {unit}
      </p>
      <LevelLine simulation={simulation} />
      <p class="muted learn-small">The level over the last 20 seconds</p>
    </Panel>
  )
}

function BudgetNote({ settings: { limit, window, arrivals, pattern, algorithm } }: { readonly settings: Settings }) {
  if (pattern === 'edges') return <>{2 * limit} around every second edge</>
  const over = arrivals - (hasPermits({ algorithm }) ? limit : limit / window)
  const amount = Math.abs(Math.round(over * 100) / 100)
  return <>{amount === 0 ? 'exactly the budget' : `${amount}/s ${over > 0 ? 'over' : 'under'} budget`}</>
}

function Lessons({ onTry, onStart }: { readonly onTry: Change; readonly onStart: () => void }) {
  return (
    <Panel title="Try this" class="learn-section">
      <ul class="lessons">
        {LESSONS.map(({ title, text, settings }) => (
          <li key={title}>
            <button
              type="button"
              onClick={() => {
                onTry(settings)
                onStart()
              }}
            >
              {title}
            </button>
            <span class="muted">{text}</span>
          </li>
        ))}
      </ul>
    </Panel>
  )
}

type SideBySideProps = {
  readonly lab: Lab
  readonly selected: AlgorithmName
  readonly onSelect: (name: AlgorithmName) => void
}

/** Every algorithm, with the same limit and the same requests. */
function SideBySide({ lab, selected, onSelect }: SideBySideProps) {
  return (
    <Panel title="Side by side" note="the same limit, the same requests" class="learn-section">
      <div class="side-by-side">
        {[...lab.simulations].map(([name, simulation]) => {
          const [level = { free: 0, capacity: 0 }] = simulation.levelsAt(lab.nowUs)
          const total = simulation.allowed + simulation.denied
          return (
            <section key={name} class={name === selected ? 'side selected' : 'side'} aria-label={ABOUT[name].title}>
              <header>
                <h3>
                  <button type="button" class="link" aria-pressed={name === selected} onClick={() => onSelect(name)}>
                    {ABOUT[name].title}
                  </button>
                </h3>
                <span class="num muted">
                  {level.free.toFixed(1)} / {level.capacity}
                </span>
              </header>
              <LevelLine simulation={simulation} />
              <RecentStrip recent={simulation.recent} />
              <p class="side-counts num">
                <span class="sim-allowed">{simulation.allowed} allowed</span>
                <span class="sim-denied">{simulation.denied} denied</span>
                <span>{percent(total === 0 ? undefined : simulation.allowed / total)}</span>
              </p>
              <p class="muted learn-small">{ABOUT[name].about}</p>
            </section>
          )
        })}
      </div>
    </Panel>
  )
}
