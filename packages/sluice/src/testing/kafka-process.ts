// Starts a real Kafka broker for a test: one KRaft node on free ports, in a temporary folder that is removed when it
// stops. Maven fetches the jars once into node_modules/.cache. The broker has two listeners: `host` without
// authentication, and `secureHost` with TLS and the user `sluice`, who has no permission until a test grants some.

import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { childStarted } from './child-started.ts'
import { freePort } from './free-port.ts'

export type KafkaProcess = {
  /** `127.0.0.1:port` */
  readonly host: string
  readonly secureHost: string
  readonly password: string
  /** Configuration and data. */
  readonly folder: string
  /** Certificate of the secure listener. */
  readonly caFile: string
  /** kill -9; data stays. */
  kill(): Promise<void>
  /** Restarts it on the same ports and data. */
  restart(): Promise<void>
  /** SIGSTOP: connections stay open, and nothing answers. */
  freeze(): void
  thaw(): void
  stop(): Promise<void>
}

const VERSION = '4.3.1'
const CACHE = join(import.meta.dirname, `../../../../node_modules/.cache/sluice/kafka-${VERSION}`)
const LIBS = join(CACHE, 'libs')
const STARTED = /Kafka Server started/
const QUICK_START = ['-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Xshare:auto']
const QUIET = ['-Dorg.slf4j.simpleLogger.defaultLogLevel=error', '-Dorg.slf4j.simpleLogger.log.kafka.server=info']
const MEMORY = ['-Xms128m', '-Xmx384m']
const POM = `<project><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>${VERSION}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
`

/** Reason why Kafka cannot be started here; undefined if it can. Fetches the jars. */
export function kafkaMissing(): string | undefined {
  for (const program of ['java', 'openssl']) {
    if (spawnSync(program, ['-version']).error !== undefined) return `${program} is not installed`
  }
  if (existsSync(LIBS)) return undefined
  if (spawnSync('mvn', ['-version']).error !== undefined) return 'mvn (Maven) is not installed'
  mkdirSync(CACHE, { recursive: true })
  writeFileSync(join(CACHE, 'pom.xml'), POM)
  const args = ['-B', '-q', 'dependency:copy-dependencies', '-DincludeScope=runtime', '-DoutputDirectory=partial']
  const { status, stdout } = spawnSync('mvn', args, { cwd: CACHE, encoding: 'utf8' })
  if (status !== 0) return `Maven cannot fetch Kafka: ${stdout.trim().split('\n')[0]}`
  renameSync(join(CACHE, 'partial'), LIBS) // an interrupted download leaves no LIBS
  return undefined
}

export async function startKafka(): Promise<KafkaProcess> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-kafka-'))
  const [port, controllerPort, securePort] = [await freePort(), await freePort(), await freePort()]
  const password = randomBytes(12).toString('hex')
  const caFile = createCertificate(folder)
  const file = join(folder, 'server.properties')
  writeFileSync(file, properties({ folder, port, controllerPort, securePort, password }))
  const cluster = randomBytes(16).toString('base64url')
  java(['kafka.tools.StorageTool', 'format', `--cluster-id=${cluster}`, '-c', file]) // the id may start with a dash
  let child: ChildProcess
  const restart = async () => {
    const args = [...MEMORY, ...QUICK_START, ...QUIET, '-cp', `${LIBS}/*`, 'kafka.Kafka', file]
    child = spawn('java', args, { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] })
    await childStarted(child, 'kafka', STARTED)
  }
  const kill = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return
    const exit = once(child, 'exit')
    child.kill('SIGKILL')
    await exit
  }
  const abandon = () => {
    child?.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
  process.once('exit', abandon) // in case the test run is interrupted
  await restart()
  return {
    ...{ host: `127.0.0.1:${port}`, secureHost: `127.0.0.1:${securePort}`, password, folder, caFile, kill, restart },
    freeze: () => void child.kill('SIGSTOP'),
    thaw: () => void child.kill('SIGCONT'),
    stop: async () => {
      await kill()
      process.off('exit', abandon)
      abandon()
    },
  }
}

function java(args: readonly string[]): void {
  execFileSync('java', [...QUICK_START, ...QUIET, '-cp', `${LIBS}/*`, ...args], { stdio: 'pipe' })
}

/** Self-signed. Kafka reads key and certificate from one file; clients get the certificate alone. */
function createCertificate(folder: string): string {
  const [key, certificate] = [join(folder, 'key.pem'), join(folder, 'certificate.pem')]
  const subject = ['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1']
  const args = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', ...subject]
  execFileSync('openssl', [...args, '-keyout', key, '-out', certificate], { stdio: 'pipe' })
  writeFileSync(join(folder, 'keystore.pem'), readFileSync(key, 'utf8') + readFileSync(certificate, 'utf8'))
  return certificate
}

type Ports = { port: number; controllerPort: number; securePort: number }

function properties({ folder, port, controllerPort, securePort, password }: Ports & Record<string, unknown>): string {
  const [plain, secure] = [`PLAINTEXT://127.0.0.1:${port}`, `SECURE://127.0.0.1:${securePort}`]
  const login = 'org.apache.kafka.common.security.plain.PlainLoginModule'
  return `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:${controllerPort}
listeners=${plain},${secure},CONTROLLER://127.0.0.1:${controllerPort}
advertised.listeners=${plain},${secure}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location=${folder}/keystore.pem
listener.name.secure.sasl.enabled.mechanisms=PLAIN
listener.name.secure.plain.sasl.jaas.config=${login} required user_sluice="${password}";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
log.dirs=${folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=200
broker.session.timeout.ms=1000
auto.create.topics.enable=false
`
}
