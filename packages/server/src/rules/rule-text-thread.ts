// Worker thread that parses one long rule text and exits.

import { getPriority, setPriority } from 'node:os'
import { parentPort, workerData } from 'node:worker_threads'
import { parseInline, type ThreadReply, type ThreadRequest } from './rule-text.ts'

/** Lower than the main thread: checks are more urgent than rules. */
const PRIORITY = 10

// Threads have their own priority only on Linux; elsewhere this would change the whole process.
if (process.platform === 'linux' && getPriority() < PRIORITY) setPriority(PRIORITY)

const request = workerData as ThreadRequest
const { value, errors, lines } = parseInline(request)
const reply: ThreadReply = { json: request.fields ? undefined : JSON.stringify(value), errors, lines }
parentPort?.postMessage(reply)
