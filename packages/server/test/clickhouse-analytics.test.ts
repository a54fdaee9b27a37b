// Analytics of ClickHouse 18.16, over HTTP.

import { type ClickHouseProcess, clickHouseMissing, startClickHouse } from 'sluice/testing'
import { afterAll, beforeAll, describe } from 'vitest'
import { ClickHouseAnalytics } from '../src/events/clickhouse/clickhouse-analytics.ts'
import { ClickHouseSink } from '../src/events/clickhouse/clickhouse-sink.ts'
import { ClickHouseClient } from '../src/events/clickhouse/client.ts'
import { ClickHouseSchema } from '../src/events/clickhouse/schema.ts'
import { readClickHouseUrl } from '../src/settings/clickhouse-url.ts'
import { analyticsContract } from './analytics-contract.ts'

describe.skipIf(clickHouseMissing() !== undefined)('ClickHouse', () => {
  let server: ClickHouseProcess
  beforeAll(async () => {
    server = await startClickHouse()
  })
  afterAll(() => server?.stop())

  analyticsContract('ClickHouse', {
    create: async () => {
      const url = readClickHouseUrl(server.url)
      if (url === undefined) throw new Error('the URL of the server is invalid')
      const client = new ClickHouseClient(url)
      const schema = new ClickHouseSchema(client)
      const sink = new ClickHouseSink(client, schema)
      return { sink, analytics: new ClickHouseAnalytics(client, schema), close: () => sink.close() }
    },
  })
})
