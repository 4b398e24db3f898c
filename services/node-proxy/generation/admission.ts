import type { ProxyPresence } from '../../../lib/bus/catalog.ts';

/** Whether a starting proxy may connect to the node agent, and if not, why. */
export type Admission =
  | { readonly admitted: true; readonly because: 'complete' | 'alone' }
  | { readonly admitted: false; readonly waitsFor: string };

/**
 * A proxy that is told of the pods shares their new connections with those that serve them already. It must not fail any that
 * they would carry, so it waits until it has every certificate one of them has. Where none serves, any proxy is better
 * than none. `others` null = not known yet.
 */
export function admission(
  missing: readonly string[],
  others: readonly ProxyPresence[] | null,
): Admission {
  if (missing.length === 0) return { admitted: true, because: 'complete' };
  if (others === null) return { admitted: false, waitsFor: 'the other proxies of the node' };
  const serving = others.filter(({ state }) => state === 'serving');
  if (serving.length === 0) return { admitted: true, because: 'alone' };
  const awaited = missing.filter((identity) =>
    serving.some((other) => !other.missing.includes(identity)),
  );
  if (awaited.length === 0) return { admitted: true, because: 'complete' };
  return { admitted: false, waitsFor: `${awaited.length} certificates, one of ${awaited[0]}` };
}
