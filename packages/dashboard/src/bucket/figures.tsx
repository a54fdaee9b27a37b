// Counts of a simulation, and its newest requests as text.

import { duration, percent, shortCount } from '../format.ts'
import { type Simulation, START_US } from './simulation.ts'

export function allowShare({ allowed, denied }: Simulation): number | undefined {
  return allowed + denied === 0 ? undefined : allowed / (allowed + denied)
}

export function Counts({ simulation }: { readonly simulation: Simulation }) {
  return (
    <dl class="sim-counts">
      <div>
        <dt>Allowed</dt>
        <dd class="sim-allowed">{shortCount(simulation.allowed)}</dd>
      </div>
      <div>
        <dt>Refused</dt>
        <dd class="sim-denied">{shortCount(simulation.denied)}</dd>
      </div>
      <div>
        <dt>Allowed share</dt>
        <dd>{percent(allowShare(simulation))}</dd>
      </div>
    </dl>
  )
}

const LISTED = 6

export function RecentList({ simulation: { recent } }: { readonly simulation: Simulation }) {
  const newest = recent.slice(-LISTED).reverse()
  return (
    <ol class="sim-recent">
      {newest.map(({ number, atUs, allowed, free, waitUs, delayUs }) => (
        <li key={number}>
          <span class="muted num">{((atUs - START_US) / 1_000_000).toFixed(2)} s</span>
          <span class={allowed ? 'sim-allowed' : 'sim-denied'}>{allowed ? 'allowed' : '429'}</span>
          <span>
            {!allowed && (waitUs > 0 ? `retry after ${duration(waitUs)}` : 'never fits')}
            {allowed && (delayUs > 0 ? `waits ${duration(delayUs)}` : `${Math.floor(free)} left`)}
          </span>
        </li>
      ))}
      {Array.from({ length: LISTED - newest.length }, (_, index) => (
        <li key={`empty-${index}`}>&nbsp;</li>
      ))}
    </ol>
  )
}
