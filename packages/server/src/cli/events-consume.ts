// `sluice events consume --from kafka=… --to clickhouse=…`: moves the rows of a Kafka sink to ClickHouse. Its code is
// loaded only when needed.

import { EVENT_SETTINGS } from '../settings/event-settings.ts'
import { type Command, defineCommand, type Flag } from './command.ts'

const PORT_MAX = 65_535
const RETENTION = EVENT_SETTINGS.eventsRetentionMs

const FLAGS: readonly Flag[] = [
  {
    name: 'from',
    value: '<kafka=address>',
    help: 'Topic to read: kafka=host:port[,host:port…][/topic]. TLS and passwords: docs/guides/kafka.md.',
    env: 'SLUICE_CONSUME_FROM',
  },
  {
    name: 'to',
    value: '<clickhouse=url>',
    help: 'Database to write to: clickhouse=http://[user:password@]host:port[/database].',
    env: 'SLUICE_CONSUME_TO',
  },
  {
    name: 'group',
    value: '<name>',
    help: 'Consumer group: consumers with the same group share the partitions.',
    fallback: 'sluice-events',
    accepts: (text) => /^[\w.-]{1,200}$/.test(text),
    fix: 'give 1 to 200 letters, digits, dots, dashes and underscores',
  },
  { name: 'once', help: 'Stop at the end of the topic.' },
  {
    name: RETENTION.flag,
    value: '<duration>',
    help:
      'How long ClickHouse keeps rows: drops the partitions of older days, at the start and every hour. ' +
      '0: forever.',
    env: RETENTION.env,
    fallback: RETENTION.shownFallback,
    accepts: (text) => RETENTION.read(text) !== undefined,
    fix: RETENTION.fix,
  },
  {
    name: 'metrics-port',
    value: '<port>',
    help: 'Serve Prometheus metrics at /metrics on this port.',
    accepts: (text) => /^\d{1,5}$/.test(text) && Number(text) <= PORT_MAX,
    fix: `give a port from 0 to ${PORT_MAX}; 0 chooses a free one`,
  },
  { name: 'metrics-host', value: '<address>', help: 'Address for --metrics-port.', fallback: '127.0.0.1' },
]

export const EVENTS_CONSUME: Command = defineCommand({
  name: 'events consume',
  summary: 'Moves decision events from Kafka to ClickHouse, each row exactly once.',
  details:
    'Runs until it is stopped. Reads its position from ClickHouse: it can be killed and started again at any time. ' +
    'Several consumers may run with the same group. Point all of them at the same ClickHouse server.',
  positionals: [],
  flags: FLAGS,
  examples: [
    {
      does: 'one topic to a ClickHouse server',
      line: 'sluice events consume --from kafka=10.0.0.5:9092 --to clickhouse=http://10.0.0.6:8123',
    },
    {
      does: 'up to the end of the topic',
      line: 'sluice events consume --from kafka=10.0.0.5:9092 --to clickhouse=http://10.0.0.6:8123 --once',
    },
  ],
  run: async (given, terminal) => {
    const { runConsumer } = await import('./run-consumer.ts')
    return runConsumer(given, terminal)
  },
})
