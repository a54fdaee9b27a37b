// Start of the dashboard: asks the service who is signed in, then shows the sign-in page or the shell.

import { render } from 'preact'
import { App } from './app.tsx'
import { startTheme } from './theme.ts'
import './styles/tokens.css'
import './styles/base.css'
import './styles/shell.css'
import './styles/components.css'

startTheme()
const root = document.getElementById('app')
if (root !== null) render(<App />, root)
