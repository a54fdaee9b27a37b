// Colour theme: that of the system, or the user's choice, which this browser remembers.

import { effect, signal } from '@preact/signals'

export type Theme = 'system' | 'light' | 'dark'

const KEY = 'sluice.theme'
const THEMES: readonly Theme[] = ['system', 'light', 'dark']
const systemIsDark = matchMedia('(prefers-color-scheme: dark)')

export const theme = signal<Theme>(storedTheme())
/** The theme in use. Charts draw on a canvas and need it to pick their colours. */
export const isDark = signal(false)

export function startTheme(): void {
  effect(() => {
    isDark.value = theme.value === 'dark' || (theme.value === 'system' && systemIsDark.matches)
    document.documentElement.dataset.theme = isDark.value ? 'dark' : 'light'
    store(theme.value)
  })
  systemIsDark.addEventListener('change', () => {
    if (theme.value === 'system') isDark.value = systemIsDark.matches
    document.documentElement.dataset.theme = isDark.value ? 'dark' : 'light'
  })
}

export function nextTheme(): void {
  theme.value = isDark.value ? 'light' : 'dark'
}

function storedTheme(): Theme {
  try {
    return THEMES.find((one) => one === localStorage.getItem(KEY)) ?? 'system'
  } catch {
    return 'system' // storage is blocked
  }
}

function store(value: Theme): void {
  try {
    if (value === 'system') localStorage.removeItem(KEY)
    else localStorage.setItem(KEY, value)
  } catch {
    // Storage is blocked: the choice lasts until the page is closed.
  }
}
