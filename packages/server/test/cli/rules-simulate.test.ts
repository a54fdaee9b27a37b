import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { temporaryFolder } from '../databases.ts'
import { ADMIN_TOKEN, serveApp } from '../service.ts'
import { sluice } from './terminal.ts'

const ROOT = new URL('../../../../', import.meta.url)
const LOG = new URL('examples/access.log', ROOT).pathname
const RULES = new URL('examples/rules.yaml', ROOT).pathname

function file(name: string, content: string | Uint8Array): string {
  const path = join(temporaryFolder(), name)
  writeFileSync(path, content)
  return path
}

const RULE = '- { rule_id: per_ip, scope: per_ip, limit: 2, window: 1m }'
const line = (second: number, status = 200) =>
  `192.0.2.1 - - [31/Jan/2030:12:00:0${second} +0000] "GET / HTTP/1.1" ${status} 5`

describe('sluice rules simulate', () => {
  test('prints the table of the guide', async () => {
    const { code, out } = await sluice(['rules', 'simulate', '--log', LOG, '--rules', RULES])
    const page = readFileSync(new URL('docs/guides/what-if.md', ROOT), 'utf8')
    const printed = /^```text\n([\s\S]*?)^```$/m.exec(page)?.[1]
    expect(code).toBe(0)
    expect(out.replaceAll(LOG, 'examples/access.log').trimEnd()).toBe(printed?.trimEnd())
  })

  test('compares with the log, or with other rules', async () => {
    const log = file('a.log', [0, 1, 2, 3].map((second) => line(second, second === 3 ? 429 : 200)).join('\n'))
    const rules = file('new.yaml', RULE)
    const json = async (...more: string[]) =>
      JSON.parse((await sluice(['rules', 'simulate', '--log', log, '--rules', rules, '--json', ...more])).out)
    expect(await json()).toMatchObject({
      ...{ against: 'recorded', now: { refused: 1 }, new: { refused: 2 }, changes: { newly_denied: 1 } },
      recording: { source: 'log', lines: 4, malformed: 0 },
    })
    expect(await json('--against', rules)).toMatchObject({ against: 'rules', changes: { newly_denied: 0 } })
  })

  test('a note counts recorded requests that had an exception', async () => {
    const ids = { event_id: 'e', sample_rate: 1, admission_rate: 1 }
    const event = { ...ids, operation: 'check', timestamp: '2030-01-31T12:00:00Z', ip: '192.0.2.1' }
    const events = [event, { ...event, override_id: 'ovr_1' }].map((one) => JSON.stringify(one)).join('\n')
    const args = ['rules', 'simulate', '--log', file('a.jsonl', events), '--rules', file('new.yaml', RULE)]
    expect((await sluice(args)).out).toContain('note: exceptions are not replayed: 1 recorded requests had an override')
    expect(JSON.parse((await sluice([...args, '--json'])).out)).toMatchObject({ inaccuracies: { exceptions: 1 } })
  })

  test('reads standard input, compressed and several files', async () => {
    const rules = file('new.yaml', RULE)
    const text = [0, 1, 2].map((second) => line(second)).join('\n')
    const zipped = file('a.log.gz', gzipSync(text))
    const piped = await sluice(['rules', 'simulate', '--log', '-', '--rules', rules, '--json'], { input: text })
    expect(JSON.parse(piped.out)).toMatchObject({ replayed: 3, new: { refused: 1 } })
    const both = await sluice([
      'rules',
      'simulate',
      '--log',
      zipped,
      '--log',
      file('b.log', line(5)),
      '--rules',
      rules,
      '--json',
    ])
    expect(JSON.parse(both.out)).toMatchObject({ replayed: 4, new: { refused: 2 } })
  })

  test('reports malformed and endless lines, and escapes what clients chose', async () => {
    const hostile = `192.0.2.9 - \u001b[31m [31/Jan/2030:12:00:00 +0000] "GET / HTTP/1.1" 200 5`
    const lines = ['nonsense', ...Array.from({ length: 4 }, () => hostile), 'x'.repeat(600_000), line(1)]
    const rules = file('new.yaml', '- { rule_id: per_user, scope: per_user, limit: 1, window: 1m }')
    const { code, out } = await sluice([
      'rules',
      'simulate',
      '--log',
      file('a.log', lines.join('\n')),
      '--rules',
      rules,
    ])
    expect(code).toBe(0)
    expect(out).toContain('2 of 7 lines are malformed')
    expect(out).toContain('a.log:1: not in Common or Combined Log Format')
    expect(out).toContain('a.log:6: too long')
    expect(out).not.toContain('\u001b')
  })

  test.each([
    ['no rules', ['--log', LOG], '--rules'],
    ['a missing log', ['--log', '/nowhere.log', '--rules', RULES], 'the log cannot be read: ENOENT'],
    ['a folder', ['--log', '/tmp', '--rules', RULES], 'it is a folder'],
    ['standard input twice', ['--log', '-', '--rules', '-'], 'only once'],
    ['an unknown format', ['--log', LOG, '--rules', RULES, '--format', 'clf'], '--format: use one of auto'],
    ['events of a sample', ['--log', 'SAMPLE', '--rules', RULES], 'record with --events-sample 1'],
  ])('says what to do about %s', async (_, args, message) => {
    const event = {
      event_id: 'e',
      sample_rate: 0.1,
      admission_rate: 0.1,
      timestamp: '2030-01-31T12:00:00Z',
      client_id: 'a',
    }
    const sample = file('sample.jsonl', JSON.stringify(event))
    const { code, told } = await sluice(['rules', 'simulate', ...args.map((arg) => (arg === 'SAMPLE' ? sample : arg))])
    expect([code, told]).toEqual([2, expect.stringContaining(message)])
  })

  describe('without --log', () => {
    test('asks a node, which needs stored events', async () => {
      const node = await serveApp([])
      const args = [
        'rules',
        'simulate',
        '--rules',
        file('new.yaml', RULE),
        '--url',
        node.address,
        '--token',
        ADMIN_TOKEN,
      ]
      expect((await sluice(args)).told).toContain('409 NO_ANALYTICS')
    })
  })
})
