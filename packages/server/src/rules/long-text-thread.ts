// The thread that reads one long text and ends. JSON carries the answer: it is read faster than a copied object.

import { getPriority, setPriority } from 'node:os'
import { parentPort, workerData } from 'node:worker_threads'
import { answerHere, type ThreadQuestion, type ThreadReply } from './long-text.ts'
import { inPieces } from './pieces.ts'

/** Nobody waits for rules as they wait for checks. */
const PRIORITY = 10

// On Linux a thread has a priority of its own; elsewhere it would be that of the whole process.
if (process.platform === 'linux' && getPriority() < PRIORITY) setPriority(PRIORITY)

const question = workerData as ThreadQuestion
const { value, faults, lines } = answerHere(question)
const reply: ThreadReply = { ...inPieces(question.fields ? undefined : value), faults, lines }
parentPort?.postMessage(reply)
