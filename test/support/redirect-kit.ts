/** Redirection of real namespaces, for tests. */
import { rm } from 'node:fs/promises';
import type { ExecutionContext } from 'ava';
import { closeFd, netnsIdentity, openNetns } from '../../lib/linux/netns.ts';
import { Redirector } from '../../lib/redirect/apply.ts';
import type { RedirectTarget } from '../../lib/redirect/apply.ts';
import { chooseNative } from '../../lib/redirect/choose-native.ts';
import { chooseTools } from '../../lib/redirect/flavour.ts';
import type { RedirectTools } from '../../lib/redirect/flavour.ts';
import { podRedirect } from '../../lib/redirect/pod-options.ts';
import { redirectRules } from '../../lib/redirect/rules.ts';
import { makeScratch } from './leftovers.ts';
import type { TestNetns } from './netns-kit.ts';

/** The node's settings. */
export const DEFAULTS = {
  ipv6: true,
  dnsCapture: false,
  probeAddress: { v4: '169.254.7.127', v6: 'fd16:9254:7127:1337:ffff:ffff:ffff:ffff' },
};
/** A way to write rules. */
export type Way = 'nft' | 'legacy' | 'native';

/** The rules of a pod without annotations. */
export const EXPECTED = redirectRules(podRedirect({}, DEFAULTS).options);

/** Opens a namespace until the end of the test. */
export function open(t: ExecutionContext, netns: TestNetns): RedirectTarget {
  const netnsFd = openNetns(netns.path);
  t.teardown(() => closeFd(netnsFd));
  return { netnsFd, inode: netnsIdentity(netnsFd).inode };
}

/** Makes a redirector with a folder of its own for locks. */
export async function redirector(
  t: ExecutionContext,
  way: Way,
): Promise<{ tool: Redirector; lockDir: string }> {
  const lockDir = await makeScratch('locks');
  t.teardown(() => rm(lockDir, { recursive: true }));
  return { tool: new Redirector(await tools(way, lockDir), lockDir), lockDir };
}

async function tools(way: Way, lockDir: string): Promise<RedirectTools> {
  if (way !== 'native') return chooseTools({ ipv6: true, force: way, lockDir });
  const chosen = await chooseNative(true);
  if ('reason' in chosen) throw new Error(chosen.reason);
  return chosen;
}

/** Lists all rules of both families. */
export async function saved(netns: TestNetns, flavour: Way): Promise<string> {
  if (flavour === 'native') return netns.exec('/usr/sbin/nft', 'list', 'ruleset');
  const both = await Promise.all(
    ['iptables', 'ip6tables'].map((name) => netns.exec(`${name}-${flavour}-save`)),
  );
  return both.join('');
}
