// Reads recorded events of the service in the worker: the page never holds the requests.

import type { RecordedRequest } from 'sluice/replay'
import type { Period, Recording } from './protocol.ts'

/** A problem document of the service. */
export class ServiceProblem extends Error {
  readonly problem: { readonly status: number; readonly code: string }

  constructor(message: string, status: number, code: string) {
    super(message)
    this.problem = { status, code }
  }
}

/** `onBytes` gets the number of bytes so far. */
export async function fetchRecording(url: string, onBytes: (count: number) => void): Promise<Recording> {
  const response = await fetch(url, { headers: { accept: 'application/json' } }).catch(() => {
    throw new ServiceProblem('The service does not answer. Is it running?', 0, 'UNREACHABLE')
  })
  if (!response.ok) {
    const { detail, code } = (await response.json().catch(() => ({}))) as { detail?: string; code?: string }
    throw new ServiceProblem(detail ?? `The service answered ${response.status}.`, response.status, code ?? 'UNKNOWN')
  }
  let count = 0
  const counting = new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
    transform: (chunk, controller) => {
      count += chunk.length
      onBytes(count)
      controller.enqueue(chunk)
    },
  })
  return (await new Response(response.body?.pipeThrough(counting)).json()) as Recording
}

/** Requests are sorted by time. */
export function periodOf(requests: readonly RecordedRequest[]): Period {
  const [first, last] = [requests[0], requests.at(-1)]
  return { fromMs: first && first.atUs / 1000, toMs: last && last.atUs / 1000 }
}
