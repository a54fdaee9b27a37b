import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { describe, expect, test, vi } from 'vitest'
import { ADMIN_TOKEN, RULES, type Service, serveFile } from './service.ts'
import { withinRunTime } from './stalls.ts'

function yaml(limit: number | string): string {
  return `- { rule_id: one, limit: ${limit}, window: 1d, scope: per_user, algorithm: fixed_window }\n`
}

async function untilVersion({ get }: Service, version: number): Promise<void> {
  await vi.waitFor(async () => expect((await get(RULES, ADMIN_TOKEN)).body.version).toBe(version), {
    timeout: 10_000,
    interval: 20,
  })
}

async function untilStatus({ get }: Service, status: string): Promise<void> {
  await vi.waitFor(async () => expect((await get('/readyz')).body.status).toBe(status), {
    timeout: 10_000,
    interval: 20,
  })
}

describe('a change of the rule file', () => {
  test('applies while running, within a second, and counts are kept', async () => {
    const service = await serveFile(yaml(5))
    expect(await service.check({ client_id: 'a', cost: 3 })).toMatchObject({ limit: 5, remaining: 2 })
    writeFileSync(service.rulesPath, yaml(10))
    await withinRunTime(1000, async () => expect((await service.get(RULES, ADMIN_TOKEN)).body.version).toBe(2))
    expect(await service.check({ client_id: 'a' })).toMatchObject({ allowed: true, limit: 10, remaining: 6 })
    expect(service.logged).toContainEqual(
      expect.objectContaining({ level: 'info', event: 'rules_applied', version: 2 }),
    )
  })

  test('to a text that would change what people see keeps the last good rules', async () => {
    const service = await serveFile(yaml(5))
    writeFileSync(service.rulesPath, yaml(6).replace('limit', 'description: "a\\u202eb", limit'))
    await untilStatus(service, 'degraded')
    expect(await service.check({ client_id: 'a' })).toMatchObject({ limit: 5 })
    const [{ errors } = {}] = service.logged.filter(({ event }) => event === 'rules_rejected')
    expect(errors).toEqual([expect.stringMatching(/:1: one\.description: remove control characters/)])
  })

  test('is detected when the file is replaced, as editors do, and when it is missing for a while', async () => {
    const service = await serveFile(yaml(5))
    writeFileSync(`${service.rulesPath}.new`, yaml(6))
    renameSync(`${service.rulesPath}.new`, service.rulesPath)
    await untilVersion(service, 2)
    rmSync(service.rulesPath)
    await untilStatus(service, 'degraded')
    expect(await service.check({ client_id: 'a' })).toMatchObject({ limit: 6 })
    writeFileSync(service.rulesPath, yaml(7))
    await untilVersion(service, 3)
    expect(await service.check({ client_id: 'b' })).toMatchObject({ limit: 7 })
  })

  test('to an invalid one keeps the last good rules and is logged once; fixing it clears the error', async () => {
    const service = await serveFile(yaml(5))
    writeFileSync(service.rulesPath, yaml(-1))
    await untilStatus(service, 'degraded')
    expect((await service.get(RULES, ADMIN_TOKEN)).body).toMatchObject({ version: 1, rules: [{ limit: 5 }] })
    expect(await service.check({ client_id: 'a' })).toMatchObject({ allowed: true, limit: 5 })
    expect(String((await service.get('/metrics')).body.text)).toContain('sluice_rules_valid 0')
    const errors = service.logged.filter(({ level }) => level === 'error')
    expect(errors).toMatchObject([
      {
        event: 'rules_rejected',
        version: 1,
        errors: [expect.stringMatching(/rules\.yaml:1: rules\[0\]\.limit: give a whole number .* \(got -1\)$/)],
      },
    ])
    writeFileSync(service.rulesPath, yaml(8))
    await untilVersion(service, 2)
    await untilStatus(service, 'ready')
    expect(String((await service.get('/metrics')).body.text)).toContain('sluice_rules_valid 1\n')
  })

  test('to a rule without effect is invalid', async () => {
    const service = await serveFile(yaml(5))
    writeFileSync(service.rulesPath, yaml('5, store: hot'))
    await untilStatus(service, 'degraded')
    expect((await service.get(RULES, ADMIN_TOKEN)).body).toMatchObject({ version: 1 })
    const [line] = service.logged.flatMap(({ errors = [] }) => errors as string[])
    expect(line).toMatch(/rules\.yaml:1: one\.store: use "default": .* \(got "hot"\)$/)
  })
})
