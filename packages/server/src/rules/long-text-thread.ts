// The thread that reads one long text and ends. JSON carries the answer: it is read faster than a copied object.

import { parentPort, workerData } from 'node:worker_threads'
import { answerHere, type ThreadQuestion } from './long-text.ts'

const question = workerData as ThreadQuestion
const { value, faults, lines } = answerHere(question)
parentPort?.postMessage(JSON.stringify({ ...(question.fields ? {} : { value }), faults, lines }))
