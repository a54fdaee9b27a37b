// The stacks by name. Add a stack here and to GRPC_STACKS.

import { GRPC_STACKS, type GrpcStack } from '../settings/grpc-settings.ts'
import { createLeanServer } from './http2/server.ts'
import type { CreateGrpcServer } from './method.ts'
import { createNodeServer } from './node-stack.ts'

export const STACKS: Readonly<Record<GrpcStack, CreateGrpcServer>> = {
  lean: createLeanServer,
  node: createNodeServer,
}

export const DEFAULT_STACK: GrpcStack = GRPC_STACKS[0]
