// Freeze and global factor, as GET /api/v1/rate-limit/incident answers.

import { type Resource, useApi } from '../../resource.ts'

export type GlobalFactor = {
  readonly factor: number
  readonly reason: string
  readonly by: string
  readonly by_name: string | null
  readonly expires_at: string
  readonly approvals?: number
}

export type IncidentState = {
  readonly frozen: boolean
  readonly freeze: {
    readonly since: string
    readonly by: string
    readonly by_name: string | null
    readonly reason: string | null
  } | null
  readonly factor: GlobalFactor | null
  readonly pending_factor: GlobalFactor | null
}

const REFRESH_MS = 5000

export function useIncident(): Resource<IncidentState> {
  return useApi<IncidentState>('/rate-limit/incident', {}, { refreshMs: REFRESH_MS })
}
