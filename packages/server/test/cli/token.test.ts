import { describe, expect, onTestFinished, test } from 'vitest'
import { tokenHash } from '../../src/access/token.ts'
import { migrate } from '../../src/db/migrate.ts'
import { openDatabase } from '../../src/db/open-database.ts'
import { temporaryFolder, usePostgres } from '../databases.ts'
import { ADMIN_TOKEN, serveApp, serveFile } from '../service.ts'
import { sluice } from './terminal.ts'

const postgres = usePostgres()

/** A node on its own database, and the flags for both. */
async function node() {
  const url = postgres().createDatabase()
  const database = await openDatabase({ database: url, dataDir: '' })
  onTestFinished(() => database.close())
  await migrate(database)
  const app = await serveApp([], undefined, { database, dataDir: temporaryFolder() })
  const env = { SLUICE_URL: app.address, SLUICE_TOKEN: ADMIN_TOKEN }
  return { ...app, database, url, env }
}

describe('tokens', () => {
  test('are created, shown once, listed without the secret, and revoked', async () => {
    const { env, address } = await node()
    const made = await sluice(['token', 'create', 'gateway', '--role', 'viewer', '--expires-in', '90d'], { env })
    expect(made).toMatchObject({ code: 0, out: expect.stringMatching(/^sluice_\S{43}\n$/) })
    const secret = made.out.trim()
    const [, id = ''] =
      /^(tok_\w+): role viewer, valid until .+\. The token is not shown again\.\n$/.exec(made.told) ?? []
    const list = async () => (await sluice(['token', 'list'], { env })).out
    expect(await list()).toMatch(new RegExp(`^  ${id} +gateway +viewer +until \\S+ +never$`, 'm'))
    expect(await list()).not.toContain(secret)

    const explained = ['explain', '--path', '/', '--url', address, '--token', secret]
    expect((await sluice(explained)).code, 'the new token opens what its role may').toBe(0)
    const unasked = await sluice(['token', 'revoke', id], { env })
    expect(unasked).toMatchObject({ code: 2, told: expect.stringContaining('pass --yes or --dry-run') })
    expect((await sluice(['token', 'revoke', id], { env, answer: false })).code).toBe(3)
    expect((await sluice(['token', 'revoke', id, '--dry-run'], { env })).code).toBe(0)
    expect((await sluice(explained)).code, 'nothing was revoked yet').toBe(0)
    expect(await sluice(['token', 'revoke', id], { env, answer: true })).toMatchObject({ code: 0, out: '' })
    expect((await sluice(explained)).code).toBe(4)
    expect(await list()).toMatch(new RegExp(`^  ${id} +gateway +viewer +revoked `, 'm'))
  })

  test('can be created directly in the database if all tokens are lost', async () => {
    const { url, address, admin } = await node()
    const made = await sluice(['token', 'create', 'me', '--role', 'admin', '--database', url, '--json'])
    expect(made.code).toBe(0)
    const { token, role } = JSON.parse(made.out) as { token: string; role: string }
    expect(role).toBe('admin')
    await expect.poll(() => admin.tokens.find(tokenHash(token))?.role, { timeout: 20_000 }).toBe('admin')
    expect((await sluice(['token', 'list', '--url', address, '--token', token])).code).toBe(0)
  })

  test.each([
    [['token', 'create'], 2, '<name>: give a name for the token'],
    [['token', 'create', 'x', '--role', 'veiwer'], 2, 'did you mean "viewer"?'],
    [['token', 'create', 'x', '--expires-in', 'soon'], 2, 'give a whole number and a unit'],
    [['token', 'create', 'x', '--expires-in', '0m'], 2, 'from 1m to 3660d (got "0m")'],
    [['token', 'create', 'x', '--expires-in', '9999d'], 2, 'from 1m to 3660d (got "9999d")'],
    [['token', 'create', 'x\ny', '--database', 'postgres://127.0.0.1:65535/x'], 2, '<name>: give 1 to 100 characters'],
    [
      ['token', 'create', 'x', '--data-dir', '/tmp'],
      2,
      '--data-dir: give the data folder of a node: this folder contains',
    ],
    [['token', 'create', 'x', '--database', 'mysql://u:secret@h/x'], 2, '--database: give a URL such as postgres://'],
    [['token', 'list', '--url', 'http://u:secret@127.0.0.1:8080'], 2, 'without user and password\n'],
    [['token', 'create', 'x', '--database', 'postgres://127.0.0.1:65535/x'], 1, 'cannot use the database: '],
    [['token', 'lits'], 2, 'unknown command "token lits"; did you mean "sluice token list"?'],
    [['token'], 2, 'sluice token: missing command; use one of create, approve, list, revoke'],
  ])('%j exits with %i', async (args, code, message) => {
    expect(await sluice(args)).toMatchObject({ code, out: '', told: expect.stringContaining(message) })
  })

  test('an unknown token, and a node without a database', async () => {
    const { env } = await node()
    expect(await sluice(['token', 'revoke', 'tok_0'], { env })).toMatchObject({ code: 2 })
    const { address } = await serveFile('[]')
    const { code, told } = await sluice(['token', 'list', '--url', address, '--token', ADMIN_TOKEN])
    expect(code).toBe(5)
    expect(told).toContain('409 NO_DATABASE: This node has no database: its tokens come from --tokens-file')
  })
})

describe('audit verify', () => {
  test('passes, and fails once an entry is edited by hand, with and without a node', async () => {
    const { env, url, database } = await node()
    for (const name of ['a', 'b', 'c']) await sluice(['token', 'create', name], { env })
    const ways = [[], ['--database', url]]
    for (const way of ways) {
      const { code, out } = await sluice(['audit', 'verify', ...way], { env })
      expect({ code, out }).toEqual({ code: 0, out: expect.stringMatching(/^intact: 4 entries, hash [0-9a-f]{64}\n$/) })
    }
    await database.query('ALTER TABLE audit DISABLE TRIGGER ALL')
    await database.query(`UPDATE audit SET actor = 'somebody else' WHERE seq = 3`)
    for (const way of ways) {
      const { code, out } = await sluice(['audit', 'verify', ...way], { env })
      expect(code).toBe(3)
      expect(out).toBe('broken: row 3 or a row before it was edited or moved; 2 entries before it are intact\n')
    }
    const { out } = await sluice(['audit', 'verify', '--json'], { env })
    expect(JSON.parse(out)).toMatchObject({ intact: false, rows: 2, seq: 3 })
  })
})
