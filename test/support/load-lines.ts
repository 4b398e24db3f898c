/** The lines that the load client prints. */

/** Answers received so far, over new connections and over the one kept connection. */
export type LoadCounts = Readonly<
  Record<string, { readonly fresh: number; readonly kept: number }>
>;

/** A connection that was refused, reset, ended early or not answered in time. */
export interface LoadFailure {
  readonly target: string;
  readonly kind: 'fresh' | 'kept';
  readonly reason: string;
  readonly at: number;
}

/** One line. */
export type LoadLine = { readonly counts: LoadCounts } | { readonly failure: LoadFailure };

/** `host:port` or `[v6]:port` as `net.connect` takes it. */
export function splitHostPort(target: string): { readonly host: string; readonly port: number } {
  const colon = target.lastIndexOf(':');
  return {
    host: target.slice(0, colon).replace(/^\[|\]$/g, ''),
    port: Number(target.slice(colon + 1)),
  };
}
