export type EarlierVersion = {
  /** A root with `packages/sluice/dist` and `packages/server/dist`. */
  readonly folder: string
  /** The command of the service. */
  readonly main: string
  remove(): void
}

export declare const OLD_VERSION: string
export declare function compileEarlierVersion(commit: string): EarlierVersion | undefined
