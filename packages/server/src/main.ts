#!/usr/bin/env node
// The command `sluice`. cli/commands.ts lists its subcommands.

import { runCommand } from './cli/run.ts'
import { processTerminal } from './process/terminal.ts'

const exitCode = await runCommand(process.argv.slice(2), processTerminal())
// Exits explicitly, because a debugger may still hold a handle, and only after all output is flushed.
process.stdout.write('', () => process.stderr.write('', () => process.exit(exitCode)))
