import { parseRules, type Rule } from 'sluice'
import { type EtcdProcess, startEtcd } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { EtcdSource } from '../src/rules/etcd/etcd-source.ts'
import { parseEtcdUrl } from '../src/settings/etcd-address.ts'

const PATIENTLY = { timeout: 20_000, interval: 20 }

let etcd: EtcdProcess
let prefixes = 0

beforeAll(async () => {
  etcd = await startEtcd()
})

afterAll(() => etcd.stop())

describe('an address', () => {
  const NO_LOGIN = { login: undefined }
  test.each([
    ['etcd://h:1/a', { endpoints: ['http://h:1'], prefix: '/a/', ...NO_LOGIN }],
    ['etcd://h/a/b.c_d-e', { endpoints: ['http://h:2379'], prefix: '/a/b.c_d-e/', ...NO_LOGIN }],
    ['etcds://h:1/a', { endpoints: ['https://h:1'], prefix: '/a/', ...NO_LOGIN }],
    [
      'etcd://h:1,[::1]:2,i/a',
      { endpoints: ['http://h:1', 'http://[::1]:2', 'http://i:2379'], prefix: '/a/', ...NO_LOGIN },
    ],
    ['etcd://me:a%40b:c@h:1/a', { endpoints: ['http://h:1'], prefix: '/a/', login: { name: 'me', password: 'a@b:c' } }],
  ])('%s', (text, expected) => expect(parseEtcdUrl(text)).toEqual(expected))

  test.each([
    ['etcd://h:1', 'add the prefix of the keys after the host, as in etcd://127.0.0.1:2379/sluice/rules'],
    ['etcd://h:1/', 'add the prefix of the keys after the host, as in etcd://127.0.0.1:2379/sluice/rules'],
    ['etcd://h:1/a/../b', 'the prefix may not have "." or ".." between its slashes'],
    ['etcd://h:1/..', 'the prefix may not have "." or ".." between its slashes'],
    ['etcd://h:1/a/./b', 'the prefix may not have "." or ".." between its slashes'],
    ['etcd://h:1/a%2e%2e/b', 'the prefix may have letters, digits'],
    ['etcd://h:1/a%00', 'the prefix may have letters, digits'],
    ['etcd://h:1/a\u0000b', 'the prefix may have letters, digits'],
    ['etcd://h:1/a\nb', 'the prefix may have letters, digits'],
    ['etcd://h:1/a b', 'the prefix may have letters, digits'],
    ['etcd://h:1/ä', 'the prefix may have letters, digits'],
    ['etcd://h:1/a\ud800', 'the prefix may have letters, digits'],
    ['etcd://h:1/a\\b', 'the prefix may have letters, digits'],
    ['etcd://h:1/a//b', 'the prefix may have letters, digits'],
    ['etcd://h:1//a', 'the prefix may have letters, digits'],
    ['etcd://h:1/a/', 'the prefix may have letters, digits'],
    ['etcd://h:1/a?b', 'the prefix may have letters, digits'],
    ['etcd://h:1/a#b', 'the prefix may have letters, digits'],
    [`etcd://h:1/${'a'.repeat(255)}`, 'give a prefix of at most 255 characters'],
    ['etcd:///a', 'give hosts with optional ports'],
    ['etcd://h:123456/a', 'give hosts with optional ports'],
    ['etcd://h:1,/a', 'give hosts with optional ports'],
    ['etcd://u:p@h@i/a', 'give a URL such as'],
    ['etcd://user@h/a', 'give user:password before the @'],
    ['etcd://user:%zz@h/a', 'give user:password before the @'],
    ['etcd:h/a', 'give a URL such as etcd://127.0.0.1:2379/sluice/rules'],
  ])('%j is rejected with the fix', (text, why) => expect(parseEtcdUrl(text)).toContain(why))
})

describe('the keys below a prefix form one rule set', () => {
  test('one key may hold all of them, or each key one, in YAML or JSON', async () => {
    const { source, prefix, put } = newSource()
    await put({
      b: yaml('two', 2),
      a: `rules:\n  - ${yaml('one', 1)}`,
      'c.json': JSON.stringify([JSON.parse(json('three', 3))]),
    })
    await etcd.put({ [`${prefix}x`]: yaml('neighbour', 9) }) // shares the text of the prefix, but is not below it
    expect(limitsOf(await read(source))).toEqual({ one: 1, two: 2, three: 3 })
  })

  test('unchanged rules are not read again', async () => {
    const { source, put } = newSource()
    const revision = await put({ a: yaml('a', 1) })
    const found = await source.read(undefined)
    expect(found?.version).toBe(revision)
    expect(await source.read(found?.version)).toBeUndefined()
    await etcd.put({ '/elsewhere': 'x' })
    expect(await source.read(found?.version), 'other keys do not matter').toBeUndefined()
    await put({ b: yaml('b', 2), a: null })
    expect(limitsOf(await read(source))).toEqual({ b: 2 })
  })

  test('mistakes name the key and the line', async () => {
    const { source, prefix, put } = newSource()
    await put({
      a: yaml('a', 1),
      b: '- rule_id: b\n  limit: -1\n  window: 1m\n',
      c: 'rule_id: c\nlimit: 1\nwindow: 1m\nstore: x\n',
    })
    const found = await source.read(undefined)
    const error = await found?.errorOf?.([
      { field: 'rules[1].limit', value: -1, fix: 'mend it' },
      { field: 'c.store', value: 'x', fix: 'mend it' },
      { field: 'rules', value: undefined, fix: 'mend it' },
    ])
    expect(error?.message.split('\n')).toEqual([
      `[RULE_INVALID] etcd ${prefix}/b:2: rules[1].limit: mend it (got -1)`,
      `etcd ${prefix}/c:4: c.store: mend it (got "x")`,
      `etcd ${prefix}/: rules: mend it (got nothing)`,
    ])
  })

  test.each([
    ['no key at all', {}, /put rules into keys below \/test-\d+\/, or \[\] for no rules/],
    ['a value that is no YAML', { a: 'a: b: c' }, /etcd \/test-\d+\/a:1: fix the YAML syntax/],
    ['a value that is no JSON', { 'a.json': '[\n{"a":}]' }, /etcd \/test-\d+\/a.json:2: fix the JSON syntax/],
  ])('%s is rejected', async (_name, values, message) => {
    const { source, put } = newSource()
    if (Object.keys(values).length > 0) await put(values)
    await expect(source.read(undefined)).rejects.toThrow(message)
  })

  test('a value that is not UTF-8 is rejected, and its key is named', async () => {
    const { source, prefix, put } = newSource()
    await put({ a: yaml('a', 1) })
    const value = Buffer.from('{ rule_id: b, limit: 1, window: 1m, name: "caf\xe9" }', 'latin1').toString('base64')
    await etcd.request('/v3/kv/put', { key: Buffer.from(`${prefix}/b`).toString('base64'), value })
    await expect(source.read(undefined)).rejects.toThrow(`etcd ${prefix}/b: value: store it as UTF-8`)
  })

  test('an empty list means no rules', async () => {
    const { source, put } = newSource()
    await put({ a: '[]' })
    expect(await read(source)).toEqual([])
  })
})

describe('changes', () => {
  test('arrive as whole revisions: a reader never sees half of a transaction', async () => {
    const { source, put } = newSource()
    await put({ a: yaml('a', 1), b: yaml('b', 1) })
    const follower = await follow(source)
    for (let limit = 2; limit <= 60; limit += 1) await put({ a: yaml('a', limit), b: yaml('b', limit) })
    await vi.waitFor(() => expect(follower.last()).toEqual({ a: 60, b: 60 }), PATIENTLY)
    expect(follower.seen.filter(({ a, b }) => a !== b)).toEqual([])
    expect(follower.versions).toEqual([...follower.versions].sort((a, b) => a - b))
  })

  test('an invalid revision is reported, and the next valid one is applied', async () => {
    const { source, put } = newSource()
    await put({ a: yaml('a', 1) })
    const follower = await follow(source)
    await put({ a: 'a: b: c' })
    await vi.waitFor(() => expect(follower.errors.at(-1)).toMatch(/fix the YAML syntax/), PATIENTLY)
    await put({ a: yaml('a', 2) })
    await vi.waitFor(() => expect(follower.last()).toEqual({ a: 2 }), PATIENTLY)
  })

  test('a deleted key is a change', async () => {
    const { source, put } = newSource()
    await put({ a: yaml('a', 1), b: yaml('b', 1) })
    const follower = await follow(source)
    await put({ b: null })
    await vi.waitFor(() => expect(follower.last()).toEqual({ a: 1 }), PATIENTLY)
  })

  test('no change is reported after stop', async () => {
    const { source, put } = newSource()
    await put({ a: yaml('a', 1) })
    let calls = 0
    const watch = await source.watch(() => {
      calls += 1
    })
    await vi.waitFor(() => expect(calls).toBe(1), PATIENTLY)
    await watch.stop()
    await put({ a: yaml('a', 2) })
    const other = await follow(source)
    await vi.waitFor(() => expect(other.last()).toEqual({ a: 2 }), PATIENTLY)
    expect(calls).toBe(1)
  })
})

describe('outages', () => {
  test('etcd is killed, restarted, written to and compacted during a watch: no change is lost', async () => {
    const own = await ownEtcd()
    const { source, put } = newSource(own)
    await put({ a: yaml('a', 1) })
    const follower = await follow(source)
    for (let round = 1; round <= 3; round += 1) {
      await own.down()
      await vi.waitFor(() => expect(follower.errors).toHaveLength(round), PATIENTLY)
      await own.up()
      // Compacts the revision that the watch would resume from before it reconnects.
      await put({ a: yaml('a', 10 * round) })
      const revision = await put({ b: yaml('b', 10 * round) })
      await own.compact(revision)
      await vi.waitFor(() => expect(follower.last()).toEqual({ a: 10 * round, b: 10 * round }), PATIENTLY)
      await put({ a: yaml('a', 10 * round + 1) })
      await vi.waitFor(() => expect(follower.last()).toMatchObject({ a: 10 * round + 1 }), PATIENTLY)
    }
    expect(follower.errors.filter((message) => !message.includes('is unreachable'))).toEqual([])
  })

  test('a compaction alone goes unnoticed', async () => {
    const { source, put } = newSource()
    await put({ a: yaml('a', 1) })
    const follower = await follow(source)
    for (let limit = 2; limit <= 20; limit += 1) await etcd.compact(await put({ a: yaml('a', limit) }))
    await vi.waitFor(() => expect(follower.last()).toEqual({ a: 20 }), PATIENTLY)
    expect(follower.errors.filter((message) => !message.includes('compacted'))).toEqual([])
  })

  test('while it is unreachable, reads fail with the reason; of several members the next one is tried', async () => {
    const own = await ownEtcd()
    const { source, put } = newSource(own, (host) => `127.0.0.1:65535,${host}`)
    await put({ a: yaml('a', 1) })
    await expect(source.read(undefined)).rejects.toThrow(/127\.0\.0\.1:65535 is unreachable: .*ECONNREFUSED/)
    expect(limitsOf(await read(source))).toEqual({ a: 1 })
    await own.down()
    await expect(source.read(undefined)).rejects.toThrow(/is unreachable/)
  })

  test('a user name and password authenticate, and a wrong password is reported without showing it', async () => {
    const own = await ownEtcd()
    const { prefix, put } = newSource(own)
    await put({ a: yaml('a', 1) })
    await own.request('/v3/auth/user/add', { name: 'root', password: 'long secret' })
    await own.request('/v3/auth/role/add', { name: 'root' })
    await own.request('/v3/auth/user/grant', { user: 'root', role: 'root' })
    await own.request('/v3/auth/enable', {})
    expect(limitsOf(await read(sourceAt(`etcd://root:long%20secret@${own.host}${prefix}`)))).toEqual({ a: 1 })
    const stranger = sourceAt(`etcd://root:guess@${own.host}${prefix}`)
    await expect(stranger.read(undefined)).rejects.toThrow(/returned 400: .*authentication failed/)
    expect(stranger.location).toBe(`the keys below ${prefix}/ in etcd at http://${own.host}`)
    await expect(sourceAt(`etcd://${own.host}${prefix}`).read(undefined)).rejects.toThrow(/user name is empty/)
  })
})

function yaml(ruleId: string, limit: number): string {
  return `{ rule_id: ${ruleId}, limit: ${limit}, window: 1m }\n`
}

function json(ruleId: string, limit: number): string {
  return JSON.stringify({ rule_id: ruleId, limit, window: '1m' })
}

async function ownEtcd(): Promise<EtcdProcess> {
  const own = await startEtcd()
  onTestFinished(() => own.stop())
  return own
}

/** A source with its own prefix, and a function that writes below it. */
function newSource(server: EtcdProcess = etcd, hosts: (host: string) => string = (host) => host) {
  prefixes += 1
  const prefix = `/test-${prefixes}`
  const put = (values: Readonly<Record<string, string | null>>) => {
    return server.put(Object.fromEntries(Object.entries(values).map(([name, value]) => [`${prefix}/${name}`, value])))
  }
  return { prefix, put, source: sourceAt(`etcd://${hosts(server.host)}${prefix}`) }
}

function sourceAt(url: string): EtcdSource {
  const address = parseEtcdUrl(url)
  if (typeof address === 'string') throw new Error(address)
  return new EtcdSource(address)
}

async function read(source: EtcdSource): Promise<Rule[]> {
  return parseRules((await source.read(undefined))?.rules)
}

function limitsOf(rules: readonly Rule[]): Record<string, number | undefined> {
  return Object.fromEntries(rules.map(({ rule_id: id, limits }) => [id, limits[0]?.limit]))
}

/** Reads on every notification, one read at a time, as the service does. */
async function follow(source: EtcdSource) {
  const seen: Record<string, number | undefined>[] = []
  const versions: number[] = []
  const errors: string[] = []
  let reading = Promise.resolve()
  const readAgain = async () => {
    const found = await source.read(versions.at(-1))
    if (found === undefined) return
    seen.push(limitsOf(parseRules(found.rules)))
    versions.push(found.version ?? 0)
  }
  const { stop } = await source.watch(() => {
    reading = reading.then(readAgain).catch((error: Error) => void errors.push(error.message))
  })
  onTestFinished(async () => {
    await stop()
    await reading
  })
  await vi.waitFor(() => expect(seen.length).toBeGreaterThan(0), PATIENTLY)
  return { seen, versions, errors, last: () => seen.at(-1) }
}
