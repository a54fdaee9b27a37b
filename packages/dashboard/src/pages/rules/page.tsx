// Rules: the list, one rule, or the editor, depending on the URL.

import { useRoute } from 'preact-iso'
import { useQuery } from '../../location.ts'
import { can } from '../../session.ts'
import { Editor } from './editor.tsx'
import { List } from './list.tsx'
import { RulePage } from './rule-page.tsx'
import '../../bucket/bucket.css'
import './rules.css'

export function Page() {
  const { params } = useRoute()
  const [query] = useQuery()
  const id = params.id === undefined || params.id === '' ? undefined : params.id
  const isEditing = query.edit === '1' && can('editor')
  if (isEditing) return <Editor key={id ?? ''} ruleId={id} />
  return id === undefined ? <List /> : <RulePage key={id} ruleId={id} />
}
