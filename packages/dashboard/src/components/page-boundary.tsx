// Shows an error in place of a page that throws while it is drawn. Another address tries again.

import { Component, type ComponentChildren } from 'preact'
import { Failure } from './notice.tsx'
import { PageHead } from './panel.tsx'

type Props = { readonly url: string; readonly children: ComponentChildren }
type State = { readonly error?: unknown; readonly url?: string | undefined }

export class PageBoundary extends Component<Props, State> {
  override componentDidCatch(error: unknown): void {
    console.error(error)
    this.setState({ error, url: this.props.url })
  }

  override render({ url, children }: Props, { error, url: failed }: State) {
    if (failed !== url) return children
    return (
      <>
        <PageHead title="This page failed" />
        <Failure
          error={`It could not be drawn: ${error instanceof Error ? error.message : String(error)}.`}
          retry={() => this.setState({ url: undefined })}
        />
      </>
    )
  }
}
