// Thread of one simulation, so that a replay never delays a check. Receives events or requests in pages, then a task:
// { run } → { text } with the result as JSON, { list } → { text } with the requests as JSON. Replies { error } to
// invalid rules, and { progress } on the way.

import { parentPort } from 'node:worker_threads'
import { readEvent, recordingOf, replay } from 'sluice/replay'

const requests = []
let malformed = 0

parentPort.on('message', async (message) => {
  try {
    if (message.events !== undefined) message.events.forEach(addEvent)
    else if (message.requests !== undefined) requests.push(...message.requests)
    else if (message.run !== undefined) parentPort.postMessage({ text: await run(message.run) })
    else parentPort.postMessage({ text: list(message.list) })
  } catch (error) {
    const { message: text, code, fieldErrors } = error
    parentPort.postMessage({ error: { message: text, code, fieldErrors } })
  }
})

function addEvent(event) {
  const request = readEvent(event)
  if (typeof request === 'string') malformed += 1
  else requests.push(request)
}

async function run({ facts, ...options }) {
  const { requests: kept, sample, lost, unreplayable } = recordingOf(requests)
  const onProgress = (done) => parentPort.postMessage({ progress: kept.length === 0 ? 1 : done / kept.length })
  const result = await replay(kept, { ...options, sample, onProgress })
  const recording = { ...facts, recorded: requests.length, lost, unreplayable, malformed }
  return JSON.stringify({ ...result, recording })
}

function list({ facts, options }) {
  const { requests: kept, sample, lost, unreplayable } = recordingOf(requests)
  const recording = { ...facts, recorded: requests.length, lost, unreplayable, malformed }
  return JSON.stringify({ requests: kept, sample_rate: sample.rate, recording, options })
}
