// Messages between remote nodes and the service, for the service.

export { limitFingerprint } from './limit-fingerprint.ts'
export { ProtobufError, ProtobufReader, ProtobufWriter } from './protobuf.ts'
export { decodeReplies, encodeReplies, type WireGrant, type WireReply, type WireTaken } from './replies.ts'
export {
  decodeRequests,
  encodeRequests,
  type WireCharge,
  type WireKind,
  type WireRequest,
  type WireReturn,
} from './requests.ts'
export {
  decodeState,
  type ExceptedKeys,
  encodeState,
  exceptedKeys,
  exceptedKeyTest,
  type NodeState,
} from './state-message.ts'
