import type { ProxyPresence } from '../../../lib/bus/catalog.ts';

/** Says whether a starting proxy may connect to the node agent, and if not, why. */
export type AdmissionVerdict =
  | { readonly admitted: true; readonly because: 'complete' | 'alone' }
  | { readonly admitted: false; readonly waitsFor: string };

/** Whether a proxy takes new connections of the node's pods. */
export function isServing({ state }: ProxyPresence): boolean {
  return state === 'serving';
}

/**
 * Decides whether a proxy that lacks certificates for `missing` may begin. A proxy that knows the pods shares their new
 * connections with the proxies that serve them already. It must not fail connections that those would carry, so it waits until
 * it has every certificate that one of them has. When no proxy serves, any proxy is better than none; but one may serve that is
 * not in Redis, such as ztunnel, or not at this moment. So such a start waits for all certificates until no proxy has been in sight
 * for `strangersMs`; `aloneMs` is the time without one so far. `others` is null while the other proxies are not known.
 */
export function admission(
  missing: readonly string[],
  others: readonly ProxyPresence[] | null,
  { aloneMs, strangersMs }: { readonly aloneMs: number; readonly strangersMs: number },
): AdmissionVerdict {
  if (missing.length === 0) return { admitted: true, because: 'complete' };
  if (others === null) return { admitted: false, waitsFor: 'the other proxies of the node' };
  const serving = others.filter(isServing);
  if (serving.length === 0 && aloneMs >= strangersMs) return { admitted: true, because: 'alone' };
  const awaited =
    serving.length === 0
      ? missing
      : missing.filter((identity) => serving.some((other) => !other.missing.includes(identity)));
  if (awaited.length === 0) return { admitted: true, because: 'complete' };
  return { admitted: false, waitsFor: `${awaited.length} certificates, one of ${awaited[0]}` };
}
