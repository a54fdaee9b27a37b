// Ships JSON lines to Elasticsearch with the rsyslog configuration of docs/guides/log-shipping.md: every event becomes
// one document, also if the file is rotated meanwhile and lines are repeated. Elasticsearch comes from Maven; rsyslog
// is the installed one, or is unpacked from Debian packages, without installing them.

import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import {
  appendFileSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Guarantee } from '../guarantees.ts'

const ROOT = fileURLToPath(new URL('../../../', import.meta.url))
const CACHE = join(ROOT, 'node_modules/.cache/sluice')
const ELASTICSEARCH = '8.19.21'
const ARTIFACT = `org.elasticsearch.distribution.integ-test-zip:elasticsearch:${ELASTICSEARCH}:zip`
const PORT = 18_450
const INDEX = 'sluice-decisions'
const WAIT_SECONDS_MAX = 180
const UNPRIVILEGED = 65_534
const REPEATED_LINES = 20
const BATCH_EVENTS = 200
/** Longer than any timeout of rsyslog's queues. */
const FROZEN_MS = 8000

type Sink = {
  write(id: { producer: string; seq: number }, batch: object, isRetry: boolean): Promise<number>
  close(): Promise<void>
}
type OpenSink = (options: { path: string; maxBytes: number; files: number }) => Promise<Sink>
type Rsyslog = { readonly program: string; readonly modules: readonly string[]; readonly libraries: string }

export async function logShipping(events: number): Promise<Guarantee[]> {
  for (const program of ['java', 'mvn', 'unzip']) {
    if (spawnSync(program, ['-v']).error !== undefined) return [skipped(`${program} is not installed`)]
  }
  const rsyslog = findRsyslog()
  if (rsyslog === undefined) return [skipped('rsyslog with omelasticsearch is neither installed nor in apt')]
  const folder = mkdtempSync(join(tmpdir(), 'log-shipping-'))
  const running: ChildProcess[] = []
  try {
    const elasticsearch = await startElasticsearch(folder)
    running.push(elasticsearch, startRsyslog(rsyslog, folder))
    signalGroup(elasticsearch, 'SIGSTOP')
    const lines = await writeEvents(folder, events)
    await sleep(FROZEN_MS)
    signalGroup(elasticsearch, 'SIGCONT')
    const documents = await waitForDocuments(events)
    const repeated = readdirSync(folder).includes('elasticsearch-errors.json')
    return [
      { held: documents === events, text: `${lines} lines of ${events} events: ${documents} documents` },
      { held: repeated, text: `${REPEATED_LINES} repeated lines were refused by their document id` },
      await sampleDocument(),
    ]
  } finally {
    await Promise.all(running.map(stop))
  }
}

function skipped(reason: string): Guarantee {
  return { held: true, text: `skipped: ${reason}` }
}

/** Writes batches while rsyslog reads, rotates several times, and repeats some lines. Returns the number of lines. */
async function writeEvents(folder: string, events: number): Promise<number> {
  const module = (await import(join(ROOT, 'packages/server/dist/events/jsonl-sink.js'))) as { openJsonlSink: OpenSink }
  const path = join(folder, 'decisions.jsonl')
  const sink = await module.openJsonlSink({ path, maxBytes: events * 250, files: 20 })
  for (let from = 0; from < events; from += BATCH_EVENTS) {
    const count = Math.min(BATCH_EVENTS, events - from)
    const batch = { events: Array.from({ length: count }, (_, index) => eventNumber(from + index)) }
    await sink.write({ producer: 'soak', seq: from }, batch, false)
    await sleep(5)
  }
  await sink.close()
  const written = readFileSync(path, 'utf8').split('\n').filter(Boolean)
  const repeated = written.slice(-REPEATED_LINES)
  appendFileSync(path, `${repeated.join('\n')}\n`)
  return events + repeated.length
}

function eventNumber(number: number): object {
  const texts = ['alice', 'quote " and \\ backslash', 'line\nbreak', 'emoji 😀', `${'long'.repeat(256)}`]
  return {
    event_id: randomUUID(),
    timestamp: Date.UTC(2026, 0, 1) + number,
    request_id: `r-${number}`,
    client_id: texts[number % texts.length],
    ip: number % 2 === 0 ? '192.0.2.1' : 'hmac:0123456789abcdef',
    endpoint: '/login',
    method: 'POST',
    rule_id: 'login',
    allowed: number % 3 === 0,
    node: 'soak',
    decision_us: 12,
    remaining: number,
  }
}

/** Waits until no more documents arrive. */
async function waitForDocuments(expected: number): Promise<number> {
  let documents = 0
  for (let second = 0; second < WAIT_SECONDS_MAX && documents < expected; second++) {
    await sleep(1000)
    await request('POST', `/${INDEX}/_refresh`).catch(() => {})
    documents = await request('GET', `/${INDEX}/_count`).then(
      ({ count }) => Number(count),
      () => 0,
    )
  }
  await sleep(5000) // the repeated lines come last
  await request('POST', `/${INDEX}/_refresh`)
  return Number((await request('GET', `/${INDEX}/_count`)).count)
}

async function sampleDocument(): Promise<Guarantee> {
  const query = '?q=sluice.remaining:1&size=1'
  const { hits } = (await request('GET', `/${INDEX}/_search${query}`)) as { hits?: { hits: { _source: object }[] } }
  const found = JSON.stringify(hits?.hits[0]?._source ?? {})
  const held = found.includes('"ip_hash":"hmac:0123456789abcdef"') && found.includes('"outcome":"failure"')
  return { held, text: 'a document has the fields of its event' }
}

async function request(method: string, path: string): Promise<Record<string, unknown>> {
  const response = await fetch(`http://127.0.0.1:${PORT}${path}`, { method })
  if (!response.ok) throw new Error(`Elasticsearch answered ${response.status}`)
  return (await response.json()) as Record<string, unknown>
}

async function startElasticsearch(folder: string): Promise<ChildProcess> {
  const home = join(folder, `elasticsearch-${ELASTICSEARCH}`)
  const zip = join(CACHE, `elasticsearch-${ELASTICSEARCH}.zip`)
  if (!existsSync(zip)) {
    mkdirSync(CACHE, { recursive: true })
    const pom = '<groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging>'
    writeFileSync(join(folder, 'pom.xml'), `<project><modelVersion>4.0.0</modelVersion>${pom}</project>`)
    const args = ['-B', '-q', 'dependency:copy', `-Dartifact=${ARTIFACT}`, `-DoutputDirectory=${CACHE}`]
    execFileSync('mvn', args, { cwd: folder, stdio: 'pipe' })
  }
  execFileSync('unzip', ['-q', zip, '-d', folder])
  for (const name of readdirSync(join(home, 'bin'))) execFileSync('chmod', ['+x', join(home, 'bin', name)])
  const settings = [
    ...['discovery.type: single-node', 'network.host: 127.0.0.1', `http.port: ${PORT}`, `transport.port: ${PORT + 1}`],
    ...['node.store.allow_mmap: false', 'xpack.security.enabled: false'],
    ...[`path.data: ${folder}/es-data`, `path.logs: ${folder}/es-logs`],
  ]
  writeFileSync(join(home, 'config/elasticsearch.yml'), `${settings.join('\n')}\n`)
  const isRoot = process.getuid?.() === 0
  const user = isRoot ? { uid: UNPRIVILEGED, gid: UNPRIVILEGED } : {} // it refuses to run as root
  if (isRoot) {
    for (const parent of [tmpdir(), folder]) execFileSync('chmod', ['o+rx', parent])
    execFileSync('chown', ['-R', `${UNPRIVILEGED}:${UNPRIVILEGED}`, home])
    for (const name of ['es-data', 'es-logs']) {
      mkdirSync(join(folder, name))
      chownSync(join(folder, name), UNPRIVILEGED, UNPRIVILEGED)
    }
  }
  const java = join(
    execFileSync('readlink', ['-f', execFileSync('which', ['java'], { encoding: 'utf8' }).trim()], {
      encoding: 'utf8',
    }).trim(),
    '../..',
  )
  const env = { ...process.env, ES_JAVA_HOME: java, ES_JAVA_OPTS: '-Xms512m -Xmx512m', HOME: home }
  const child = spawn(join(home, 'bin/elasticsearch'), [], { ...user, cwd: home, env, stdio: 'ignore', detached: true })
  for (let second = 0; second < WAIT_SECONDS_MAX; second++) {
    if (child.exitCode !== null) throw new Error('Elasticsearch exited during startup')
    if (
      await request('GET', '/_cluster/health').then(
        () => true,
        () => false,
      )
    )
      return child
    await sleep(1000)
  }
  await stop(child)
  throw new Error(`Elasticsearch did not start within ${WAIT_SECONDS_MAX} s`)
}

/** The configuration of the guide, with other paths and another port. */
function startRsyslog({ program, modules, libraries }: Rsyslog, folder: string): ChildProcess {
  const page = readFileSync(join(ROOT, 'docs/guides/log-shipping.md'), 'utf8')
  const [, guide = ''] = /```\n(global\(.*?)```/s.exec(page) ?? []
  const config = guide
    .replaceAll('/var/log/sluice/', `${folder}/`)
    .replace('serverport="9200"', `serverport="${PORT}"`)
    .replace('global(', `global(workDirectory="${folder}" `)
  const file = join(folder, 'rsyslog.conf')
  writeFileSync(file, config)
  const path = [libraries, process.env.LD_LIBRARY_PATH].filter(Boolean).join(':')
  const env = { ...process.env, ...(path === '' ? {} : { LD_LIBRARY_PATH: path }) }
  const args = ['-n', '-f', file, '-i', join(folder, 'rsyslog.pid'), ...modules]
  return spawn(program, args, { env, stdio: ['ignore', 'inherit', 'inherit'] })
}

function findRsyslog(): Rsyslog | undefined {
  const installed = '/usr/lib/x86_64-linux-gnu/rsyslog'
  if (existsSync(join(installed, 'omelasticsearch.so')) && existsSync('/usr/sbin/rsyslogd')) {
    return { program: '/usr/sbin/rsyslogd', modules: [], libraries: '' }
  }
  const root = join(CACHE, 'rsyslog')
  if (!existsSync(root) && !unpackRsyslog(root)) return undefined
  const libraries = join(root, 'usr/lib/x86_64-linux-gnu')
  return { program: join(root, 'usr/sbin/rsyslogd'), modules: ['-M', join(libraries, 'rsyslog')], libraries }
}

/** Downloads the packages that are missing here, and unpacks them. */
function unpackRsyslog(root: string): boolean {
  const packages = join(CACHE, 'rsyslog-packages')
  mkdirSync(packages, { recursive: true })
  const script = `set -e
    for name in $(apt-get install -s --no-install-recommends rsyslog rsyslog-elasticsearch | awk '/^Inst/{print $2}')
    do apt-get download -q "$name"; done
    mkdir "${root}.partial"
    for file in *.deb; do dpkg -x "$file" "${root}.partial"; done
    mv "${root}.partial" "${root}"`
  return spawnSync('sh', ['-c', script], { cwd: packages, stdio: 'ignore' }).status === 0
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exit = once(child, 'exit')
  if (!signalGroup(child, 'SIGTERM')) child.kill('SIGTERM')
  await exit
}

/** The launcher of Elasticsearch and its server are a process group. False if the child has no group of its own. */
function signalGroup({ pid }: ChildProcess, signal: NodeJS.Signals): boolean {
  if (pid === undefined) return false
  try {
    return process.kill(-pid, signal)
  } catch {
    return false
  }
}
