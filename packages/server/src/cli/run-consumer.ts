// Runs `sluice events consume` until a signal, or to the end of the topic.

import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import { ClickHouseClient } from '../events/clickhouse/client.ts'
import { retentionOf } from '../events/clickhouse/retention.ts'
import { ClickHouseSchema } from '../events/clickhouse/schema.ts'
import { ClickHouseWriter } from '../events/kafka/clickhouse-writer.ts'
import { type ConsumerDeps, consume } from '../events/kafka/consumer.ts'
import { ConsumerCounts } from '../events/kafka/consumer-counts.ts'
import type { Log } from '../log.ts'
import { LOG_EVENTS } from '../log-events.ts'
import { reasonOf } from '../problems/reason.ts'
import { EXIT } from '../process/exit-codes.ts'
import { terminationSignal } from '../process/signals.ts'
import type { Terminal } from '../process/terminal.ts'
import { CLICKHOUSE_URL_FIX, type ClickHouseUrl, readClickHouseUrl } from '../settings/clickhouse-url.ts'
import { EVENT_SETTINGS } from '../settings/event-settings.ts'
import { type KafkaAddress, parseKafkaAddress } from '../settings/kafka-address.ts'
import type { Given } from './arguments.ts'
import { CommandError } from './command.ts'

export async function runConsumer(given: Given, terminal: Terminal): Promise<number> {
  const [address, url] = [readFrom(given), readTo(given)]
  const client = new ClickHouseClient(url)
  const counts = new ConsumerCounts()
  const tell = (line: string) => terminal.tell(`sluice events consume: ${line}\n`)
  const schema = new ClickHouseSchema(client)
  const writer = new ClickHouseWriter(client, schema)
  const metrics = await serveMetrics(given, counts, terminal)
  const retention = retentionOf(client, schema, retentionMs(given), logOf(tell))
  try {
    await consumeUntilSignal(given, address, { writer, counts, tell })
    tell(`stopped; ${counts.rows} rows stored`)
    return EXIT.done
  } catch (error) {
    throw new CommandError(reasonOf(error))
  } finally {
    metrics?.close().closeAllConnections()
    await retention?.close()
    await client.close()
  }
}

/** Checked by the flag. */
function retentionMs(given: Given): number {
  const { flag, read } = EVENT_SETTINGS.eventsRetentionMs
  return read(given.text(flag) ?? '') ?? 0
}

function logOf(tell: (line: string) => void): Log {
  return {
    event: (event, fields) => tell(`${LOG_EVENTS[event].message} ${JSON.stringify(fields)}`),
    isLevelEnabled: () => true,
  }
}

async function consumeUntilSignal(given: Given, address: KafkaAddress, deps: ConsumerDeps): Promise<void> {
  const stop = new AbortController()
  void terminationSignal().then(() => stop.abort())
  const options = { address, group: given.text('group') ?? '', once: given.has('once') }
  await consume(options, deps, stop.signal)
}

function readFrom(given: Given): KafkaAddress {
  const text = addressIn(given, 'from', 'kafka=')
  try {
    return parseKafkaAddress(text)
  } catch (error) {
    throw new CommandError(`--from: ${reasonOf(error)}`, EXIT.invalid)
  }
}

function readTo(given: Given): ClickHouseUrl {
  const url = readClickHouseUrl(addressIn(given, 'to', 'clickhouse='))
  if (url === undefined) throw new CommandError(`--to: ${CLICKHOUSE_URL_FIX}`, EXIT.invalid)
  return url
}

/** The value is not printed: it can contain a password. */
function addressIn(given: Given, flag: string, prefix: string): string {
  const text = given.text(flag) ?? ''
  if (text.startsWith(prefix)) return text.slice(prefix.length)
  throw new CommandError(`--${flag}: give ${prefix}… (sluice events consume --help shows examples)`, EXIT.invalid)
}

async function serveMetrics(given: Given, counts: ConsumerCounts, terminal: Terminal): Promise<Server | undefined> {
  const port = given.text('metrics-port')
  if (port === undefined) return undefined
  const registry = counts.registry()
  const server = createServer(async (request, response) => {
    const found = request.url === '/metrics'
    response.writeHead(found ? 200 : 404, { 'content-type': registry.contentType })
    response.end(found ? await registry.metrics() : 'metrics are at /metrics\n')
  })
  server.listen(Number(port), given.text('metrics-host'))
  try {
    await once(server, 'listening')
  } catch (error) {
    throw new CommandError(`--metrics-port: ${reasonOf(error)}`)
  }
  const address = server.address()
  const listens = typeof address === 'object' && address !== null ? address.port : port
  terminal.tell(`sluice events consume: metrics on port ${listens}\n`)
  return server
}
