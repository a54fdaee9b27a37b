// The facts of one request. How rules read them: rules/condition.ts.

/** Facts of one request. All are optional: a rule that needs an absent one follows its `on_missing`. */
export type Subject = {
  readonly ip?: string | undefined
  /** The API's `client_id`. */
  readonly user?: string | undefined
  readonly apiKey?: string | undefined
  readonly tenant?: string | undefined
  readonly plan?: string | undefined
  readonly method?: string | undefined
  /** Path of the request, without the host; a query string is ignored. */
  readonly path?: string | undefined
  /** Units this request is worth: a positive integer, 1 by default. */
  readonly cost?: number | undefined
  /** Anything else a rule may look at: `header.x-client`, `country`, Envoy descriptor entries. */
  readonly attributes?: Readonly<Record<string, string | number | boolean>> | undefined
}
