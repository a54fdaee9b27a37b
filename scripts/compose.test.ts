// compose.yaml describes a fleet that can start: all services and files that it references exist, all flags are valid,
// and the image runs the published command.

import { existsSync, readFileSync } from 'node:fs'
import { describe, expect, it, test } from 'vitest'
import { parse } from 'yaml'
import { readCommand } from '../packages/server/src/settings/command-line.ts'

type Service = {
  readonly image: string
  readonly command?: readonly string[]
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>
  readonly healthcheck?: { readonly test: readonly string[] }
  readonly volumes?: readonly string[]
  readonly ports?: readonly string[]
}

const text = readFileSync('compose.yaml', 'utf8')
const { services } = parse(text, { merge: true }) as { services: Readonly<Record<string, Service>> }
const all = Object.entries(services)
const nodes = all.filter(([, { image }]) => image === 'sluice')
const dockerfile = readFileSync('Dockerfile', 'utf8')

describe.each(nodes)('%s', (_, { command = [], volumes = [], ports = [], depends_on = {} }) => {
  const [rules = ''] = volumes.map((volume) => volume.split(':')[0] ?? '')

  it('has valid flags', () => {
    const args = command.map((flag) => flag.replace('--rules=/rules.yaml', `--rules=${rules}`))
    expect(readCommand(args, {})).toMatchObject({ kind: 'serve', settings: { host: '0.0.0.0' } })
  })

  it('refers to Redis servers by service name and waits until they are healthy', () => {
    const hosts = [...command.join(' ').matchAll(/([a-z]+-redis(?:-\d)?):6379/g)].map(([, host = '']) => host)
    expect(hosts).toHaveLength(4)
    expect(hosts.filter((host) => !(host in services))).toEqual([])
    const conditions = Object.values(depends_on).map(({ condition }) => condition)
    expect(conditions.toSorted()).toEqual(['service_completed_successfully', 'service_healthy'])
  })

  it('mounts a rule file that exists, and publishes its port on loopback only', () => {
    expect(existsSync(rules)).toBe(true)
    expect(ports).toEqual([expect.stringMatching(/^127\.0\.0\.1:\d+:8080$/)])
  })
})

test('there are two regions, each with a Cluster of six servers and two nodes', () => {
  for (const region of ['eu', 'us']) {
    const named = (kind: string) => all.filter(([name]) => name.startsWith(`${region}-${kind}-`)).map(([name]) => name)
    expect(named('redis')).toHaveLength(6)
    expect(named('node')).toHaveLength(2)
    expect(Object.keys(services[`${region}-cluster`]?.depends_on ?? {})).toEqual(named('redis'))
  }
})

test.each(all)('%s depends on services that exist, and has a health check', (name, { depends_on, healthcheck }) => {
  expect(Object.keys(depends_on ?? {}).filter((other) => !(other in services))).toEqual([])
  if (!name.endsWith('-cluster')) expect(healthcheck?.test.length).toBeGreaterThan(1)
})

test('the image runs the published command', () => {
  const { bin } = JSON.parse(readFileSync('packages/server/package.json', 'utf8')) as { bin: { sluice: string } }
  expect(dockerfile).toContain(`@sluice/server/${bin.sluice.replace('./', '')}`)
})
