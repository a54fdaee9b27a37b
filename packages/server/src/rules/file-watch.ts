// Tells when a file has changed and has come to rest. It looks at the file a few times a second rather than ask the
// system for events: that also sees editors that replace the file, network folders and swapped symbolic links. A file
// that is still being written is left alone until two looks agree, because half a rule file may be a valid one.

import { type BigIntStats, statSync } from 'node:fs'
import { stat } from 'node:fs/promises'

const POLL_MS = 150
const ABSENT = 'absent'

export type FileWatch = { stop(): void }

/** `known` is the print of the file as it was last read: a change since then counts, also one from before this call. */
export function watchFile(path: string, known: string, onChange: (print: string) => void): FileWatch {
  let timer: NodeJS.Timeout | undefined
  let stopped = false
  let applied = known
  let seen = known

  const look = async () => {
    const print = await laterPrint(path)
    if (stopped) return
    if (print !== applied && print === seen) {
      applied = print
      onChange(print)
    }
    seen = print
    again()
  }
  const again = () => {
    timer = setTimeout(look, POLL_MS).unref()
  }
  look()
  return {
    stop: () => {
      stopped = true
      clearTimeout(timer)
    },
  }
}

/** A text that differs whenever the content may. A file that is gone has one like any other: this never throws. */
export function filePrint(path: string): string {
  try {
    return printOf(statSync(path, { bigint: true }))
  } catch {
    return ABSENT
  }
}

/** The same without holding up the process, however slow the disk. */
function laterPrint(path: string): Promise<string> {
  return stat(path, { bigint: true }).then(printOf, () => ABSENT)
}

/** Whoever writes may set `mtime` back, as copying programs do; nobody can set `ctime`. */
function printOf({ ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return `${ino}:${size}:${mtimeNs}:${ctimeNs}`
}
