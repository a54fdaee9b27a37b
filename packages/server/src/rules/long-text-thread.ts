// The thread that reads one long text and ends. JSON carries the answer: it is read faster than a copied object.

import { parentPort, workerData } from 'node:worker_threads'
import { answerHere, type ThreadQuestion, type ThreadReply } from './long-text.ts'
import { inPieces } from './pieces.ts'

const question = workerData as ThreadQuestion
const { value, faults, lines } = answerHere(question)
const reply: ThreadReply = { ...inPieces(question.fields ? undefined : value), faults, lines }
parentPort?.postMessage(reply)
