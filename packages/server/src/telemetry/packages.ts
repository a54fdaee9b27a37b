// Loads the OpenTelemetry packages. They are optional dependencies, loaded only when an OTLP endpoint is set.

import { OPTIONAL_DEPENDENCIES } from '../package-facts.ts'
import { settingInvalid } from '../settings/setting-invalid.ts'

/** Modules of the packages that spans need. */
export type Packages = {
  readonly api: typeof import('@opentelemetry/api')
  readonly sdk: typeof import('@opentelemetry/sdk-trace-node')
  readonly exporter: typeof import('@opentelemetry/exporter-trace-otlp-http')
  readonly resources: typeof import('@opentelemetry/resources')
}

export type LoadPackages = () => Promise<Packages>

/** Throws an error with the command that installs the packages if one of them is missing. */
export async function loadPackages(load: LoadPackages = importAll): Promise<Packages> {
  try {
    return await load()
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code !== 'ERR_MODULE_NOT_FOUND' && code !== 'MODULE_NOT_FOUND') throw error
    const wanted = Object.entries(OPTIONAL_DEPENDENCIES).filter(([name]) => name.startsWith('@opentelemetry/'))
    const command = `npm install ${wanted.map(([name, version]) => `${name}@${version}`).join(' ')}`
    throw settingInvalid('otlp-endpoint', undefined, `install the OpenTelemetry packages: ${command}`, error)
  }
}

async function importAll(): Promise<Packages> {
  const [api, sdk, exporter, resources] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/sdk-trace-node'),
    import('@opentelemetry/exporter-trace-otlp-http'),
    import('@opentelemetry/resources'),
  ])
  return { api, sdk, exporter, resources }
}
