// The most important numbers of the time range.

import type { ComponentChildren } from 'preact'
import { Num } from '../../components/number.tsx'
import { Status } from '../../components/status.tsx'
import type { Fleet } from '../../fleet.ts'
import { DASH, percent, rate } from '../../format.ts'
import { type Figures, totalsOf } from './figures.ts'

type Props = {
  /** Figures of the time range. */
  readonly figures: Figures | undefined
  /** Figures of the last minute. */
  readonly minute: Figures | undefined
  readonly fleet: Fleet | undefined
  /** The service does not answer: what it said last is not shown as its state. */
  readonly isStale: boolean
}

/** Large: the last minute. Small: the time range. */
export function Tiles({ figures, minute, fleet, isStale }: Props) {
  const now = minute && totalsOf(minute)
  const whole = figures && totalsOf(figures)
  return (
    <div class="tiles">
      <Tile title="Requests, last minute" note={<>mean {rate(whole?.perSecond)}</>}>
        <Num value={now?.perSecond} as="rate" />
      </Tile>
      <Tile title="Refused, last minute" note={<>mean {percent(whole?.refusedShare)}</>}>
        <Num value={now?.refusedShare} as="percent" />
      </Tile>
      <Tile title="Decision p50" note="last minute">
        <Num value={now?.p50} as="duration" />
      </Tile>
      <Tile title="Decision p99" note="its worst second">
        <Num value={now?.worstP99} as="duration" />
      </Tile>
      <Tile title="Rule set" note={fleet && <RuleNote fleet={fleet} />}>
        {fleet === undefined ? DASH : <RuleSet fleet={fleet} />}
      </Tile>
      <Tile title="Nodes" note={fleet && (isStale ? 'not known' : <NodeNote fleet={fleet} />)}>
        {fleet === undefined ? DASH : <NodeCount fleet={fleet} isStale={isStale} />}
      </Tile>
    </div>
  )
}

type TileProps = { readonly title: string; readonly note: ComponentChildren; readonly children: ComponentChildren }

function Tile({ title, note, children }: TileProps) {
  return (
    <div class="tile">
      <p class="tile-title">{title}</p>
      <p class="tile-value">{children}</p>
      <p class="tile-note">{note ?? DASH}</p>
    </div>
  )
}

function RuleSet({ fleet }: { readonly fleet: Fleet }) {
  return <>v{Math.max(...versionsOf(fleet))}</>
}

function RuleNote({ fleet }: { readonly fleet: Fleet }) {
  const versions = versionsOf(fleet)
  const rules = fleet.nodes[0]?.rules ?? 0
  return (
    <>{versions.length > 1 ? `${versions.length} versions active` : `${rules} ${rules === 1 ? 'rule' : 'rules'}`}</>
  )
}

function versionsOf({ nodes }: Fleet): number[] {
  return [...new Set(nodes.filter(({ status }) => status !== 'silent').map((node) => node.rules_version))]
}

function NodeCount({ fleet: { nodes }, isStale }: { readonly fleet: Fleet; readonly isStale: boolean }) {
  if (isStale) return <Status health="off">{DASH}</Status>
  const ready = nodes.filter(({ status }) => status === 'ready').length
  return <Status health={ready === nodes.length ? 'good' : ready > 0 ? 'warning' : 'bad'}>{ready}</Status>
}

function NodeNote({ fleet: { nodes } }: { readonly fleet: Fleet }) {
  return <>of {nodes.length} ready</>
}
