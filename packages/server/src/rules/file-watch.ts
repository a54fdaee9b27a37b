// Reports a change of a file once it is stable. Polls instead of using file system events, which miss editors that
// replace the file, network folders and swapped symbolic links. Waits until two polls agree, because a partially
// written rule file may be valid.

import { type BigIntStats, statSync } from 'node:fs'
import { stat } from 'node:fs/promises'

const POLL_MS = 150
const ABSENT = 'absent'

export type FileWatch = { stop(): void }

/** `known` is the fingerprint at the last read. Changes since that read are reported, even those before this call. */
export function watchFile(path: string, known: string, onChange: (fingerprint: string) => void): FileWatch {
  return watchFingerprint(() => readFingerprint(path), known, onChange)
}

/** Like `watchFile`, for anything that has a fingerprint. `read` must not reject. */
export function watchFingerprint(
  read: () => Promise<string>,
  known: string,
  onChange: (fingerprint: string) => void,
): FileWatch {
  let timer: NodeJS.Timeout | undefined
  let stopped = false
  let applied = known
  let seen = known

  const poll = async () => {
    const fingerprint = await read()
    if (stopped) return
    if (fingerprint !== applied && fingerprint === seen) {
      applied = fingerprint
      onChange(fingerprint)
    }
    seen = fingerprint
    timer = setTimeout(poll, POLL_MS).unref()
  }
  poll()
  return {
    stop: () => {
      stopped = true
      clearTimeout(timer)
    },
  }
}

/** Changes whenever the content may have changed. Never throws: a missing file has a fingerprint too. */
export function fileFingerprint(path: string): string {
  try {
    return fingerprintOf(statSync(path, { bigint: true }))
  } catch {
    return ABSENT
  }
}

/** Asynchronous version, so that a slow disk does not block the process. */
function readFingerprint(path: string): Promise<string> {
  return stat(path, { bigint: true }).then(fingerprintOf, () => ABSENT)
}

/** Copying programs may restore `mtime`; `ctime` cannot be set. */
function fingerprintOf({ ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return `${ino}:${size}:${mtimeNs}:${ctimeNs}`
}
