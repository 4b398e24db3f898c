import type { ProxyPresence } from '../../../lib/bus/catalog.ts';
import type { Presence } from '../../../lib/bus/contract.ts';

/**
 * What a dedicated proxy knows of others: it shares no pod with the proxies of its node, and those must not wait for
 * certificates that it will never have.
 */
export const NOBODY: Presence<ProxyPresence> = {
  announce: () => Promise.resolve(),
  leave: () => Promise.resolve(),
  members: () => Promise.resolve(new Map()),
};
