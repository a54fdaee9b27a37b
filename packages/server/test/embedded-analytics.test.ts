// Analytics of the database of the rules: PostgreSQL and the embedded one.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe } from 'vitest'
import { migrate } from '../src/db/migrate.ts'
import { openDatabase } from '../src/db/open-database.ts'
import { embeddedAnalytics } from '../src/events/embedded/embedded-analytics.ts'
import { embeddedSink } from '../src/events/embedded/embedded-sink.ts'
import { type AnalyticsUnderTest, analyticsContract } from './analytics-contract.ts'
import { fillWithEmptyDatabase, usePostgres } from './databases.ts'

describe('on PostgreSQL', () => {
  const postgres = usePostgres()
  analyticsContract('PostgreSQL', { create: () => open(postgres().createDatabase(), '') })
})

describe('on the embedded database', () => {
  analyticsContract('the embedded database', {
    create: async () => {
      const folder = mkdtempSync(join(tmpdir(), 'sluice-analytics-'))
      await fillWithEmptyDatabase(folder)
      const opened = await open(undefined, folder)
      const close = async () => {
        await opened.close()
        rmSync(folder, { recursive: true, force: true })
      }
      return { ...opened, close }
    },
  })
})

async function open(url: string | undefined, dataDir: string): Promise<AnalyticsUnderTest> {
  const database = await openDatabase({ database: url, dataDir })
  await migrate(database)
  return { sink: embeddedSink(database), analytics: embeddedAnalytics(database), close: () => database.close() }
}
