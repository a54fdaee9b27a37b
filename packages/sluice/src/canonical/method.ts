// The known HTTP methods. Any other method is an error in a rule, and a bad request to the service.

export const METHODS: ReadonlySet<string> = new Set([
  ...['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT', 'QUERY'],
  ...['PROPFIND', 'PROPPATCH', 'MKCOL', 'COPY', 'MOVE', 'LOCK', 'UNLOCK', 'REPORT', 'SEARCH', 'PURGE'],
])
