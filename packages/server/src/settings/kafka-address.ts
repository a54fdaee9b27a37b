// Parses the address of a Kafka topic:
// `[user:password@]host:port[,host:port…][/topic][?tls=true&ca=<file>&sasl=<mechanism>&partitions=<number>]`.

export type SaslMechanism = 'plain' | 'scram-sha-256' | 'scram-sha-512'

export type KafkaAddress = {
  /** `host:port` each. */
  readonly brokers: readonly string[]
  readonly topic: string
  /** Partitions of the topic, if the sink has to create it. */
  readonly partitions: number
  readonly tls: boolean
  /** File with the certificate of the authority that signed those of the brokers. Undefined: those of the system. */
  readonly caFile: string | undefined
  readonly sasl: { readonly mechanism: SaslMechanism; readonly user: string; readonly password: string } | undefined
}

export const DEFAULT_TOPIC = 'sluice.decisions'
const DEFAULT_PARTITIONS = 3
const PARTITIONS_MAX = 1000
const BROKERS_MAX = 64
const PORT_MAX = 65_535
const MECHANISMS: readonly SaslMechanism[] = ['plain', 'scram-sha-256', 'scram-sha-512']
const PARAMETERS = ['tls', 'ca', 'sasl', 'partitions']
const ADDRESS = /^(?:(?<login>[^@/?]*)@)?(?<brokers>[^/?@]+)(?:\/(?<topic>[^/?]*))?(?:\?(?<query>.*))?$/
const BROKER = /^(?:[\w.-]+|\[[\da-fA-F:.]+\]):(?<port>\d{1,5})$/
const TOPIC = /^(?!\.{1,2}$)[\w.-]{1,249}$/

/** Throws an Error with the reason and the fix. Its text contains no password. */
export function parseKafkaAddress(text: string): KafkaAddress {
  const { login, brokers = '', topic, query = '' } = ADDRESS.exec(text)?.groups ?? {}
  if (brokers === '') throw new Error('give host:port, several separated by commas, and optionally /topic')
  const parameters = readParameters(query)
  return {
    brokers: readBrokers(brokers),
    topic: readTopic(topic ?? DEFAULT_TOPIC),
    partitions: readPartitions(parameters.get('partitions')),
    ...readTls(parameters),
    sasl: readSasl(login, parameters.get('sasl')),
  }
}

/** For messages: brokers and topic, without credentials. */
export function kafkaName({ brokers, topic }: KafkaAddress): string {
  return `kafka ${brokers.join(',')}/${topic}`
}

function readBrokers(text: string): string[] {
  const brokers = text.split(',')
  if (brokers.length > BROKERS_MAX) throw new Error(`give at most ${BROKERS_MAX} brokers (got ${brokers.length})`)
  for (const broker of brokers) {
    const port = Number(BROKER.exec(broker)?.groups?.port ?? 0)
    if (port < 1 || port > PORT_MAX) throw new Error(`a broker is host:port (got ${JSON.stringify(broker)})`)
  }
  return brokers
}

function readTopic(topic: string): string {
  if (TOPIC.test(topic)) return topic
  const fix = 'a topic has 1 to 249 letters, digits, dots, dashes and underscores'
  throw new Error(`${fix} (got ${JSON.stringify(topic)})`)
}

function readParameters(query: string): URLSearchParams {
  const parameters = new URLSearchParams(query)
  for (const name of new Set(parameters.keys())) {
    if (!PARAMETERS.includes(name))
      throw new Error(`unknown parameter ${JSON.stringify(name)}; use one of ${PARAMETERS.join(', ')}`)
    if (parameters.getAll(name).length > 1) throw new Error(`parameter ${name} is given twice; give it once`)
  }
  return parameters
}

function readPartitions(text: string | null): number {
  if (text === null) return DEFAULT_PARTITIONS
  const count = /^\d{1,4}$/.test(text) ? Number(text) : 0
  if (count >= 1 && count <= PARTITIONS_MAX) return count
  throw new Error(`partitions: give a whole number from 1 to ${PARTITIONS_MAX} (got ${JSON.stringify(text)})`)
}

function readTls(parameters: URLSearchParams): Pick<KafkaAddress, 'tls' | 'caFile'> {
  const [tls, caFile] = [parameters.get('tls') ?? 'false', parameters.get('ca') ?? undefined]
  if (tls !== 'true' && tls !== 'false') throw new Error(`tls: use true or false (got ${JSON.stringify(tls)})`)
  if (caFile === '') throw new Error('ca: give a file with a certificate')
  if (caFile !== undefined && tls !== 'true') throw new Error('ca: has no effect without tls=true')
  return { tls: tls === 'true', caFile }
}

function readSasl(login: string | undefined, mechanism: string | null): KafkaAddress['sasl'] {
  if (login === undefined) {
    if (mechanism !== null) throw new Error('sasl: needs user:password@ before the first broker')
    return undefined
  }
  const [, user = '', password = ''] = /^([^:]*):(.*)$/s.exec(login) ?? []
  if (user === '' || password === '') throw new Error('give user:password@ before the first broker, both not empty')
  const known = MECHANISMS.find((name) => name === (mechanism ?? 'plain'))
  if (known === undefined)
    throw new Error(`sasl: use one of ${MECHANISMS.join(', ')} (got ${JSON.stringify(mechanism)})`)
  return { mechanism: known, user: decoded(user), password: decoded(password) }
}

/** Users and passwords with `@`, `/`, `?` or `:` are percent-encoded. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new Error('user and password: encode % as %25')
  }
}
