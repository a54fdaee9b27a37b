// Closed-loop load for the HTTP scenarios over keep-alive connections. Writes requests as bytes and parses responses
// minimally, because the client shares the machine with the server under test.

import { connect, type Socket } from 'node:net'

export type HttpLoad = {
  /** Posts each body once; throws unless every response is a 200. */
  post(url: string, bodies: readonly string[]): Promise<void>
  /** Requests the URL once per user, sent in the header X-User; throws unless every response is a 200. */
  get(url: string, users: readonly string[]): Promise<void>
  close(): void
}

export function httpLoad(connections: number): HttpLoad {
  const open = new Map<string, Connection[]>()
  const connectionsTo = ({ hostname, port, host }: URL): Connection[] => {
    const known = open.get(host) ?? Array.from({ length: connections }, () => new Connection(hostname, Number(port)))
    open.set(host, known)
    return known
  }
  const sendAll = async (url: URL, requests: readonly string[]) => {
    let next = 0
    const work = async (connection: Connection) => {
      for (let text = requests[next++]; text !== undefined; text = requests[next++]) await connection.send(text)
    }
    await Promise.all(connectionsTo(url).map(work))
  }
  return {
    post: (text, bodies) => {
      const url = new URL(text)
      const head = `${firstLines('POST', url)}content-type: application/json\r\n`
      const requests = bodies.map((body) => `${head}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`)
      return sendAll(url, requests)
    },
    get: (text, users) => {
      const url = new URL(text)
      const head = `${firstLines('GET', url)}accept: */*\r\nuser-agent: bench\r\n`
      return sendAll(
        url,
        users.map((user) => `${head}x-user: ${user}\r\n\r\n`),
      )
    },
    close: () => {
      for (const connection of [...open.values()].flat()) connection.close()
    },
  }
}

function firstLines(method: string, { pathname, search, host }: URL): string {
  return `${method} ${pathname}${search} HTTP/1.1\r\nhost: ${host}\r\n`
}

class Connection {
  readonly #socket: Socket
  #received = ''
  #resolve: () => void = () => {}
  #reject: (error: Error) => void = () => {}

  constructor(host: string, port: number) {
    this.#socket = connect(port, host).setNoDelay(true)
    this.#socket.on('data', (chunk: Buffer) => this.#read(chunk.toString('latin1')))
    this.#socket.on('error', (error) => this.#reject(error))
    this.#socket.on('close', () => this.#reject(new Error('the server closed the connection')))
  }

  send(request: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
      this.#socket.write(request)
    })
  }

  close(): void {
    this.#socket.destroy()
  }

  #read(text: string): void {
    this.#received += text
    const end = this.#received.indexOf('\r\n\r\n')
    if (end < 0) return
    const head = this.#received.slice(0, end)
    const length = /\r\ncontent-length: (\d+)/i.exec(head)?.[1]
    if (length !== undefined && this.#received.length < end + 4 + Number(length)) return
    this.#received = ''
    if (length !== undefined && head.startsWith('HTTP/1.1 200 ')) this.#resolve()
    else this.#reject(new Error(`expected status 200 with a Content-Length: ${head}`))
  }
}
