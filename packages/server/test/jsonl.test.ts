import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { ecsDocument } from '../src/events/ecs.ts'
import type { Batch, DecisionEvent } from '../src/events/event.ts'
import { openJsonlSink, pathOfWorker } from '../src/events/jsonl-sink.ts'
import type { Sink } from '../src/events/sink.ts'
import { temporaryFolder } from './databases.ts'
import { HOSTILE, randomBatches } from './random-batches.ts'

const NOW_MS = Date.UTC(2026, 9, 5)
const OPTIONS = { maxBytes: 1e9, files: 3 }
const SINK_MODULE = new URL('../dist/events/jsonl-sink.js', import.meta.url).href

type Document = { readonly event: { readonly id: string } }

async function open(path: string, options: { maxBytes: number; files: number } = OPTIONS): Promise<Sink> {
  const sink = await openJsonlSink({ path, ...options })
  onTestFinished(() => sink.close())
  return sink
}

async function write(sink: Sink, batches: readonly Batch[]): Promise<void> {
  for (const [index, batch] of batches.entries()) await sink.write({ producer: 'p', seq: index + 1 }, batch, false)
}

function linesOf(...paths: readonly string[]): string[] {
  return paths.flatMap((path) => readFileSync(path, 'utf8').trimEnd().split('\n'))
}

function idsOf(lines: readonly string[]): string[] {
  return lines.map((line) => (JSON.parse(line) as Document).event.id)
}

function idsIn(batches: readonly Batch[]): string[] {
  return batches.flatMap(({ events }) => events.map(({ event_id }) => event_id))
}

describe('a document', () => {
  const [batch] = randomBatches(1, NOW_MS, 1)
  const event: DecisionEvent = {
    ...(batch?.events[0] as DecisionEvent), // a batch has events
    event_id: 'id',
    timestamp: Date.UTC(2026, 0, 2, 3, 4, 5, 6),
    client_id: 'alice',
    api_key: null,
    ip: '192.0.2.1',
    endpoint: '/login',
    method: 'POST',
    request_id: 'r-1',
    node: 'a-1',
    decision_us: 12,
    allowed: false,
    rule_id: 'login',
  }

  test('has ECS names, and other fields under sluice', () => {
    expect(ecsDocument(event, 'host-a')).toMatchObject({
      '@timestamp': '2026-01-02T03:04:05.006Z',
      event: { id: 'id', kind: 'event', category: ['web'], type: ['denied'], action: 'rate-limit', outcome: 'failure' },
      source: { ip: '192.0.2.1' },
      user: { id: 'alice' },
      url: { path: '/login' },
      http: { request: { method: 'POST', id: 'r-1' } },
      service: { name: 'sluice', node: { name: 'a-1' } },
      host: { name: 'host-a' },
      sluice: { rule_id: 'login', allowed: false },
    })
    expect(ecsDocument(event, 'host-a').event).toHaveProperty('duration', 12_000)
    expect(ecsDocument(event, 'host-a').sluice).not.toHaveProperty('api_key')
    expect(ecsDocument(event, 'host-a').sluice).not.toHaveProperty('ip')
  })

  test('has no source.ip for a hashed address', () => {
    const hashed = ecsDocument({ ...event, ip: 'hmac:00ff' }, 'h')
    expect(hashed).not.toHaveProperty('source')
    expect(hashed.sluice).toHaveProperty('ip_hash', 'hmac:00ff')
    expect(ecsDocument({ ...event, ip: 'fe80::1%eth0' }, 'h').sluice).toHaveProperty('ip', 'fe80::1%eth0')
    expect(ecsDocument({ ...event, ip: null }, 'h')).not.toHaveProperty('source')
  })
})

describe('a file', () => {
  test('has one line per event, whatever the values', async () => {
    const path = join(temporaryFolder(), 'decisions.jsonl')
    const [batch] = randomBatches(2, NOW_MS, 1, 200)
    const [first] = batch?.events ?? []
    const texts = [...HOSTILE, '\u0085', '\ud800', '\0', '"}\n{"event":{"id":"forged"}}']
    const fields = Object.entries(first ?? {}).filter(([, value]) => typeof value === 'string' || value === null)
    const events = texts.flatMap((text) =>
      fields.map(([field], index) => ({ ...first, [field]: text, event_id: `${texts.indexOf(text)}-${index}` })),
    ) as DecisionEvent[]
    const batches = [{ ...batch, events } as Batch, ...randomBatches(3, NOW_MS, 5)]
    await write(await open(path), batches)
    const text = readFileSync(path, 'utf8')
    expect(idsOf(linesOf(path))).toEqual(idsIn(batches))
    expect(text).not.toMatch(/[\u0085\u2028\u2029]/)
    expect(statSync(path).mode & 0o777).toBe(0o640)
  })

  test('is rotated by size, and the oldest lines are deleted', async () => {
    const folder = temporaryFolder()
    const path = join(folder, 'decisions.jsonl')
    const batches = randomBatches(4, NOW_MS, 30)
    await write(await open(path, { maxBytes: 100_000, files: 2 }), batches)
    expect(readdirSync(folder).sort()).toEqual(['decisions.jsonl', 'decisions.jsonl.1', 'decisions.jsonl.2'])
    const kept = idsOf(linesOf(`${path}.2`, `${path}.1`, path))
    expect(kept).toEqual(idsIn(batches).slice(-kept.length))
    for (const name of readdirSync(folder)) expect(statSync(join(folder, name)).size).toBeLessThan(200_000)
  })

  test('that another program moved or emptied is opened again', async () => {
    const path = join(temporaryFolder(), 'decisions.jsonl')
    const batches = randomBatches(5, NOW_MS, 3)
    const sink = await open(path)
    await write(sink, batches.slice(0, 1))
    renameSync(path, `${path}.old`)
    await write(sink, batches.slice(1, 2))
    expect(idsOf(linesOf(`${path}.old`, path))).toEqual(idsIn(batches.slice(0, 2)))
    writeFileSync(path, '')
    await write(sink, batches.slice(2))
    expect(idsOf(linesOf(path))).toEqual(idsIn(batches.slice(2)))
  })

  test('with an unfinished line gets a line break at start', async () => {
    const path = join(temporaryFolder(), 'decisions.jsonl')
    const batches = randomBatches(6, NOW_MS, 2)
    await write(await open(path), batches.slice(0, 1))
    appendFileSync(path, '{"@timestamp":"2026-')
    await write(await open(path), batches.slice(1))
    const lines = linesOf(path)
    const whole = lines.filter((line) => line !== '{"@timestamp":"2026-')
    expect(whole).toHaveLength(lines.length - 1)
    expect(idsOf(whole)).toEqual(idsIn(batches))
  })

  test('that cannot be opened is an error with its path', async () => {
    const path = join(temporaryFolder(), 'missing', 'decisions.jsonl')
    await expect(openJsonlSink({ path, ...OPTIONS })).rejects.toThrow(/missing\/decisions.jsonl.*create the folder/)
  })

  test('holds no part of a batch that did not fit, and the retry writes it once', async () => {
    const path = join(temporaryFolder(), 'decisions.jsonl')
    const batches = randomBatches(7, NOW_MS, 2, 400)
    // A limit on file sizes stands in for a full disk.
    const { code, stderr } = await inProcess(
      ['prlimit', '--fsize=100000:unlimited'],
      `
      import { spawnSync } from 'node:child_process'
      import { statSync } from 'node:fs'
      process.on('SIGXFSZ', () => {})
      const sink = await openJsonlSink({ path: ${JSON.stringify(path)}, maxBytes: 1e9, files: 1 })
      await sink.write({ producer: 'p', seq: 1 }, { ...batches[0], events: batches[0].events.slice(0, 5) }, false)
      const size = statSync(${JSON.stringify(path)}).size
      const failed = await sink.write({ producer: 'p', seq: 2 }, batches[1], false).then(() => '', ({ code }) => code)
      if (failed !== 'EFBIG' || statSync(${JSON.stringify(path)}).size !== size) throw new Error('kept a part')
      spawnSync('prlimit', ['--pid', process.pid, '--fsize=unlimited'])
      await sink.write({ producer: 'p', seq: 2 }, batches[1], true)
    `,
      batches,
    )
    expect(stderr).toBe('')
    expect(code).toBe(0)
    expect(idsOf(linesOf(path))).toEqual([...idsIn(batches.slice(0, 1)).slice(0, 5), ...idsIn(batches.slice(1))])
  })

  test('of a worker has its number', () => {
    expect(pathOfWorker('/var/log/decisions.jsonl', 0)).toBe('/var/log/decisions.jsonl')
    expect(pathOfWorker('/var/log/decisions.jsonl', 2)).toBe('/var/log/decisions-2.jsonl')
    expect(pathOfWorker('/var/log.d/decisions', 2)).toBe('/var/log.d/decisions-2')
  })
})

test('a slow reader of stdout does not block the process', async () => {
  const batches = randomBatches(8, NOW_MS, 4, 1000)
  const { code, stdout } = await inProcess(
    [],
    `
    const sink = await openJsonlSink({ path: '-', maxBytes: 0, files: 0 })
    let seq = 0
    const written = Promise.all([...batches.entries()].map(([i, batch]) =>
      i === 0 ? sink.write({ producer: 'p', seq: 1 }, batch, false) : undefined))
    await new Promise((resolve) => setImmediate(resolve)) // runs although the pipe is full
    process.stderr.write('alive')
    await written
    for (const batch of batches.slice(1)) await sink.write({ producer: 'p', seq: ++seq + 1 }, batch, false)
  `,
    batches,
  )
  expect(code).toBe(0)
  expect(idsOf(stdout.trimEnd().split('\n'))).toEqual(idsIn(batches))
})

/** Runs a script with the compiled sink. Reads its stdout only after its first line on stderr, or its end. */
async function inProcess(command: readonly string[], script: string, batches: readonly Batch[]) {
  const folder = temporaryFolder()
  const file = join(folder, 'script.mjs')
  writeFileSync(join(folder, 'batches.json'), JSON.stringify(batches))
  writeFileSync(
    file,
    `import { readFileSync } from 'node:fs'
    import { openJsonlSink } from ${JSON.stringify(SINK_MODULE)}
    const batches = JSON.parse(readFileSync(${JSON.stringify(join(folder, 'batches.json'))}, 'utf8'))
    ${script}`,
  )
  const [program = '', ...args] = [...command, process.execPath, file]
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  const closed = once(child, 'close') as Promise<[number | null]>
  const texts = { stdout: '', stderr: '' }
  child.stderr.on('data', (chunk) => {
    texts.stderr += chunk
  })
  await Promise.race([once(child.stderr, 'data'), once(child, 'exit')])
  child.stdout.on('data', (chunk) => {
    texts.stdout += chunk
  })
  return { code: (await closed)[0], ...texts }
}
