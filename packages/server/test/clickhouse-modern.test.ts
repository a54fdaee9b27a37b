// Sink and analytics on a current ClickHouse engine.

import { describe, it, onTestFinished } from 'vitest'
import { ClickHouseAnalytics } from '../src/events/clickhouse/clickhouse-analytics.ts'
import { ClickHouseSink } from '../src/events/clickhouse/clickhouse-sink.ts'
import { ClickHouseSchema } from '../src/events/clickhouse/schema.ts'
import { analyticsContract } from './analytics-contract.ts'
import { ChdbEngine, chdbMissing } from './chdb-engine.ts'
import { expectDocumentView } from './event-rows.ts'

describe.skipIf(chdbMissing() !== undefined)('a current ClickHouse', () => {
  analyticsContract('ClickHouse 26', {
    create: async () => {
      const engine = new ChdbEngine()
      const schema = new ClickHouseSchema(engine)
      const sink = new ClickHouseSink(engine, schema)
      return { sink, analytics: new ClickHouseAnalytics(engine, schema), close: () => sink.close() }
    },
  })

  it('has the events as rate_limit_events of the design document', async () => {
    const engine = new ChdbEngine()
    onTestFinished(() => engine.close())
    await expectDocumentView(engine, new ClickHouseSink(engine, new ClickHouseSchema(engine)))
  })
})
