/**
 * Cuts a pod off by policy routing: a rule before all others but the first refuses to route what leaves the pod, so that no
 * connection of it comes about in either direction. It uses nothing of the packet filter, which has failed when this is needed.
 */
import type { PolicyRouting } from '../linux/netns.ts';

/** The kernel's rule for local addresses has 0. */
const PRIORITY = 1;

/** Returns whether the cut is in force. */
export function isCut(policy: PolicyRouting): boolean {
  return policy.rules.some(({ priority, prohibits }) => priority === PRIORITY && prohibits);
}

/** Renders input of `ip -batch` that makes or ends the cut. */
export function renderCut(cut: boolean): string {
  return `rule ${cut ? 'add' : 'del'} pref ${PRIORITY} prohibit\n`;
}
