// `sluice events tail`, `top` and `query`: decision events of all nodes.

import { ANALYTICS_PATH } from '../http/routes/analytics.ts'
import { STREAM_PATH } from '../http/routes/event-stream.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { escaped } from '../text/escaped.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import type { Given } from './arguments.ts'
import { type Command, defineCommand, type Flag, OUTPUT_FLAGS } from './command.ts'
import { limitFlag, pathWith, printList } from './list.ts'
import { paintOn } from './paint.ts'

const SOURCES = ['store', 'lease', 'local', 'policy_open', 'policy_closed'] as const
const KINDS = ['user', 'api_key', 'ip'] as const

const FILTERS: readonly Flag[] = [
  { name: 'rule', value: '<rule_id>', help: 'Only decisions by this rule; none: no rule decided.' },
  { name: 'endpoint', value: '<pattern>', help: 'Only decisions with this endpoint pattern.' },
  { name: 'plan', value: '<plan>', help: 'Only decisions for this plan.' },
  { name: 'tenant', value: '<tenant>', help: 'Only decisions for this tenant.' },
  { name: 'result', value: '<result>', help: 'Only decisions with this result.', choices: ['allowed', 'refused'] },
  { name: 'source', value: '<source>', help: 'Only decisions from this source.', choices: SOURCES },
]

const RANGE: readonly Flag[] = [
  { name: 'from', value: '<time>', help: 'Start: a time (RFC 3339), or how long ago: 15m, 24h, 7d.', fallback: '1h' },
  { name: 'to', value: '<time>', help: 'End, in the same form. Default: now.' },
]

type Event = Readonly<Record<string, string | number | boolean | null>>

export const EVENTS_TAIL: Command = defineCommand({
  name: 'events tail',
  summary: 'Prints decision events of all nodes as they are stored.',
  details: 'About two seconds after the decision. Runs until interrupted, or until --count events were printed.',
  positionals: [],
  flags: [
    ...FILTERS,
    { name: 'client', value: '<id>', help: 'Only events of this client.' },
    { name: 'kind', value: '<kind>', help: 'What --client is.', choices: KINDS, fallback: 'user' },
    {
      name: 'last',
      value: '<number>',
      help: 'Newest stored events to print first.',
      fallback: '10',
      accepts: (text) => /^(\d{1,3}|1000)$/.test(text),
      fix: 'give a whole number from 0 to 1000',
    },
    {
      name: 'count',
      value: '<number>',
      help: 'Stop after this many events.',
      accepts: (text) => /^[1-9]\d{0,8}$/.test(text),
      fix: 'give a whole number from 1 to 999999999',
    },
    ...SERVER_FLAGS,
    { name: 'json', help: 'Print one JSON object per line.' },
    ...OUTPUT_FLAGS.filter(({ name }) => name !== 'json'),
  ],
  examples: [
    { does: 'who is refused right now?', line: 'sluice events tail --result refused' },
    { does: 'one client, for a program', line: 'sluice events tail --client user_12345 --count 20 --json' },
  ],
  run: async (given, terminal) => {
    const parameters = { ...filters(given), client: given.text('client'), last: given.text('last') }
    const kind = given.text('client') === undefined ? undefined : given.text('kind')
    const countMax = Number(given.text('count') ?? Number.POSITIVE_INFINITY)
    let printed = 0
    for await (const { type, data } of new Api(given).stream(pathWith(STREAM_PATH, { ...parameters, kind }))) {
      if (type === 'skipped') terminal.tell('… some events were left out: there were too many\n')
      if (type !== 'decision') continue
      printEvent(JSON.parse(data) as Event, given, terminal)
      printed += 1
      if (printed >= countMax) break
    }
    return EXIT.done
  },
})

function printEvent(event: Event, given: Given, terminal: Terminal): void {
  if (given.has('json')) {
    terminal.out(`${escaped(JSON.stringify(event))}\n`)
    return
  }
  if (event.operation === 'refund') {
    terminal.out(`${event.timestamp}  refund   request ${escaped(String(event.request_id))}\n`)
    return
  }
  const paint = paintOn(terminal)
  const { timestamp, allowed, client_id, api_key, ip, method, endpoint, rule_id, remaining, limit_count } = event
  const result = event.operation === 'reset' ? 'reset' : allowed ? paint('green', 'allowed') : paint('red', 'refused')
  const numbers = limit_count === null ? '' : ` ${remaining}/${limit_count} left`
  const wait = allowed === false && event.retry_after_ms !== null ? `, retry in ${event.retry_after_ms} ms` : ''
  const by = rule_id === null ? 'no rule' : `${rule_id}/${event.limit_name}`
  const what = [client_id ?? api_key ?? ip ?? '-', method ?? '', endpoint ?? ''].filter((text) => text !== '').join(' ')
  const source = event.source === 'store' ? '' : ` (${event.source})`
  const exceptions = [event.override_id, event.bypass_id, event.signal].filter((id) => typeof id === 'string')
  const because = exceptions.length === 0 ? '' : ` [${exceptions.join(', ')}]`
  terminal.out(`${timestamp}  ${result}  ${escaped(`${what}  ${by}${numbers}${wait}${source}${because}`)}\n`)
}

type TopRow = { name: string; kind?: string; refused: number; allowed?: number; near_limit?: number }
type TopAnswer = { readonly top: readonly TopRow[] }

export const EVENTS_TOP: Command = defineCommand({
  name: 'events top',
  summary: 'Ranks clients, rules, endpoints, plans, tenants or limits.',
  details:
    'Counts of clients are lower bounds; others count every decision. With a filter, clients are ranked by their ' +
    'recorded refusals.',
  positionals: [],
  flags: [
    {
      name: 'of',
      value: '<what>',
      help: 'What to rank.',
      choices: ['client', 'rule', 'endpoint', 'plan', 'tenant', 'limit'],
      fallback: 'client',
    },
    {
      name: 'by',
      value: '<count>',
      help: 'What to rank by.',
      choices: ['refused', 'allowed', 'near_limit'],
      fallback: 'refused',
    },
    ...RANGE,
    ...FILTERS,
    limitFlag('rows', 20),
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [
    { does: 'the clients refused most in the last hour', line: 'sluice events top --by refused' },
    { does: 'the clients that the rule login refused', line: 'sluice events top --rule login' },
    { does: 'the busiest endpoints of a week', line: 'sluice events top --of endpoint --by allowed --from 7d' },
  ],
  run: async (given, terminal) => {
    const [of, by, count] = [given.text('of'), given.text('by'), given.text('limit')]
    const path = pathWith(`${ANALYTICS_PATH}/top`, { of, by, count, ...range(given), ...filters(given) })
    const answer = await new Api(given).get<TopAnswer>(path)
    const isFiltered = Object.values(filters(given)).some((value) => value !== undefined)
    const counts = countColumns(of, isFiltered)
    const header = [(of ?? '').toUpperCase(), ...(of === 'client' ? ['KIND'] : []), ...counts.map(({ title }) => title)]
    const rows = answer.top.map((row) => [
      ...[row.name, ...(of === 'client' ? [row.kind ?? ''] : [])],
      ...counts.map(({ name }) => String(row[name] ?? 0)),
    ])
    printList({ answer, header, rows, none: 'no decisions found' }, given, terminal)
    return EXIT.done
  },
})

type CountColumn = { readonly name: 'refused' | 'allowed' | 'near_limit'; readonly title: string }

function countColumns(of: string | undefined, isFiltered: boolean): readonly CountColumn[] {
  const refused: CountColumn = { name: 'refused', title: 'REFUSED' }
  if (of === 'client' && isFiltered) return [refused]
  const near: CountColumn = { name: 'near_limit', title: 'NEAR LIMIT' }
  return [refused, { name: 'allowed', title: 'ALLOWED' }, ...(of === 'client' || of === 'limit' ? [near] : [])]
}

type Timeline = {
  readonly series: readonly { name: string; points: readonly { at: string; allowed: number; refused: number }[] }[]
}

export const EVENTS_QUERY: Command = defineCommand({
  name: 'events query',
  summary: 'Counts decisions over time.',
  details: 'Every decision of all nodes, whatever the sample rate. Steps without decisions are left out.',
  positionals: [],
  flags: [
    {
      name: 'by',
      value: '<what>',
      help: 'One series per value of this property.',
      choices: ['rule', 'endpoint', 'plan', 'tenant', 'result', 'source', 'limit'],
    },
    ...RANGE,
    { name: 'step', value: '<duration>', help: 'Length of a step, such as 1m or 1h. Default: at most 120 steps.' },
    ...FILTERS,
    { name: 'limit', value: '<rule_id/name>', help: 'Outcomes of one limit instead of decisions.' },
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [
    { does: 'the last hour, by rule', line: 'sluice events query --by rule' },
    { does: 'refusals of one endpoint', line: 'sluice events query --endpoint /login --from 24h --step 1h' },
  ],
  run: async (given, terminal) => {
    const [by, step, limit] = [given.text('by'), given.text('step'), given.text('limit')]
    const path = pathWith(`${ANALYTICS_PATH}/timeline`, { by, step, limit, ...range(given), ...filters(given) })
    const answer = await new Api(given).get<Timeline>(path)
    const header = ['AT', ...(by === undefined ? [] : [by.toUpperCase()]), 'ALLOWED', 'REFUSED']
    const points = answer.series.flatMap(({ name, points }) => points.map((point) => ({ name, ...point })))
    const rows = points
      .sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0))
      .map(({ name, at, allowed, refused }) => [at, ...(by === undefined ? [] : [name]), `${allowed}`, `${refused}`])
    printList({ answer, header, rows, none: 'no decisions found' }, given, terminal)
    return EXIT.done
  },
})

function range(given: Given): Record<string, string | undefined> {
  return { from: given.text('from'), to: given.text('to') }
}

function filters(given: Given): Record<string, string | undefined> {
  return Object.fromEntries(FILTERS.map(({ name }) => [name, given.text(name)]))
}
