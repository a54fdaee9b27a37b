import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

let folder: string

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-embed-'))
})

afterEach(() => rmSync(folder, { recursive: true, force: true }))

function write(files: Record<string, string>): void {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true })
    writeFileSync(join(folder, name), text)
  }
}

function embed(...args: string[]): { status: number | null; stderr: string } {
  return spawnSync(process.execPath, ['scripts/embed.mjs', ...args, folder], { encoding: 'utf8' })
}

describe('embedding Lua', () => {
  it('preserves every character of a script, expands each include once, and computes the SHA-1', async () => {
    write({
      'lua/take.lua': '-- entry\n--- @include "first"\n--- @include "second"\nreturn `a` .. "\\n\u0024{b}"\n',
      'lua/include/first.lua': 'local a = 1\n',
      'lua/include/second.lua': '--- @include "first"\nlocal b = 2',
    })
    expect(embed()).toMatchObject({ status: 0, stderr: '' })
    const { TAKE } = await import(pathToFileURL(join(folder, 'scripts.generated.ts')).href)
    const text = '-- entry\nlocal a = 1\nlocal b = 2\nreturn `a` .. "\\n\u0024{b}"\n'
    expect(TAKE).toEqual({ text, sha1: createHash('sha1').update(text).digest('hex') })
  })

  it('inlines constants, except in comments and strings', async () => {
    const names = "local LOG, NAME = 5, 'a b'\nlocal now, LIMIT = 1, 2\n"
    write({ 'lua/take.lua': `${names}-- LOG\nif code >= LOG then return { 'LOG', NAME, LOGS } end\n` })
    embed()
    const { TAKE } = await import(pathToFileURL(join(folder, 'scripts.generated.ts')).href)
    expect(TAKE.text).toBe("local now, LIMIT = 1, 2\n-- LOG\nif code >= 5 then return { 'LOG', 'a b', LOGS } end\n")
  })

  it('exports each script under the name of its file', async () => {
    write({ 'lua/take.lua': 'return 1', 'lua/give-back.lua': 'return 2' })
    embed()
    const exports = await import(pathToFileURL(join(folder, 'scripts.generated.ts')).href)
    expect(Object.keys(exports)).toEqual(['GIVE_BACK', 'TAKE'])
  })

  it.each([
    [
      'a missing include',
      { 'lua/take.lua': '-- x\n--- @include "gone"' },
      /take\.lua:2: .*include\/gone\.lua does not exist/,
    ],
    ['a malformed include', { 'lua/take.lua': '--- @include gone' }, /take\.lua:1: must be --- @include "name"/],
    [
      'a cycle of includes',
      {
        'lua/take.lua': '--- @include "a"',
        'lua/include/a.lua': '--- @include "b"',
        'lua/include/b.lua': '\n\n--- @include "a"',
      },
      /b\.lua:3: "a" includes itself/,
    ],
  ])('rejects %s with file and line', (_mistake, files, message) => {
    write(files)
    const { status, stderr } = embed()
    expect(status).toBe(1)
    expect(stderr).toMatch(message)
  })

  it.each([
    ['used before its definition', 'return LOG\nlocal LOG = 5'],
    ['defined twice', 'local LOG = 5\nlocal LOG = 6'],
  ])('rejects a constant that is %s', (mistake, text) => {
    write({ 'lua/take.lua': text })
    expect(embed()).toMatchObject({ status: 1, stderr: expect.stringContaining(`LOG is ${mistake}`) })
  })

  it('checks without writing: passes when up to date, fails when a script changed since', () => {
    write({ 'lua/take.lua': 'return 1' })
    expect(embed('--check')).toMatchObject({ status: 1 })
    embed()
    expect(embed('--check')).toMatchObject({ status: 0 })
    write({ 'lua/take.lua': 'return 2' })
    expect(embed('--check').stderr).toContain('out of date: npm run embed')
    embed()
    expect(embed('--check')).toMatchObject({ status: 0 })
  })
})
