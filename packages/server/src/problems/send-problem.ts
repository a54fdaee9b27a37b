// Sends a problem document.

import type { FastifyReply } from 'fastify'
import { PROBLEM_TYPE } from 'sluice/http'
import type { Problem } from './problem.ts'

export function sendProblem(reply: FastifyReply, found: Problem): FastifyReply {
  return reply.code(found.status).header('content-type', PROBLEM_TYPE).send(JSON.stringify(found))
}
