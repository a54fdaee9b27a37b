// Settings: API tokens for admins; state of sinks and webhooks, which are configured by flags of a node.

import { Notice } from '../../components/notice.tsx'
import { PageHead } from '../../components/panel.tsx'
import { can } from '../../session.ts'
import { Sinks } from './sinks.tsx'
import { Tokens } from './tokens.tsx'
import { Webhooks } from './webhooks.tsx'

export function Page() {
  return (
    <>
      <PageHead title="Settings" />
      {can('admin') ? <Tokens /> : <Notice>API tokens are visible to the role admin.</Notice>}
      <div class="columns">
        <Sinks />
        <Webhooks />
      </div>
    </>
  )
}
