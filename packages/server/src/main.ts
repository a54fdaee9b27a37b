#!/usr/bin/env node
// The command `sluice`: what it can do is the table in cli/commands.ts.

import { runCommand } from './cli/run.ts'
import { processTerminal } from './cli/terminal.ts'
import { keepTickShape } from './process/tick-shape.ts'

keepTickShape()
const exitCode = await runCommand(process.argv.slice(2), processTerminal())
// Ended rather than left to end, because a debugger may still hold a handle; but not before all output has left.
process.stdout.write('', () => process.stderr.write('', () => process.exit(exitCode)))
