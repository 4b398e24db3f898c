/** Chooses how the node's rules for kubelet's probes are written. */
import { MeshError, errorText } from '../errors/mesh-error.ts';
import type { RedirectTools } from './flavour.ts';
import { iptablesHostProbes } from './host-probes-iptables.ts';
import { nftHostProbes } from './host-probes.ts';
import type { HostProbeScripts } from './host-probes.ts';
import { DEFAULT_PROBE_ADDRESS } from './rules.ts';
import { runScript } from './run-script.ts';

/** The chosen scripts, and those whose rules an earlier agent may have left. */
export interface ChosenHostProbes {
  readonly scripts: HostProbeScripts;
  readonly others: readonly HostProbeScripts[];
}

const TRIAL = new Map([
  ['192.0.2.1', 'trial'],
  ['2001:db8::1', 'trial'],
]);

/**
 * Chooses nftables unless legacy iptables is forced or nftables does not work, else ipset with the iptables programs of the pods.
 * Each is tried in a new namespace, under a lock in `lockDir`. Rejects with NETNS_RULES when none works.
 */
export async function chooseHostProbes(
  tools: Pick<RedirectTools, 'flavour' | 'ipv6'>,
  { force, lockDir }: { readonly force: 'legacy' | 'nft' | null; readonly lockDir: string },
): Promise<ChosenHostProbes> {
  const { flavour, ipv6 } = tools;
  const iptables = iptablesHostProbes(flavour === 'native' ? 'plain' : flavour, ipv6);
  const candidates =
    force === 'legacy'
      ? [iptables]
      : flavour === 'native'
        ? [nftHostProbes]
        : [nftHostProbes, iptables];
  const reasons: string[] = [];
  for (const scripts of candidates) {
    const reason = await failure(scripts, lockDir);
    if (reason === null) {
      const others = [nftHostProbes, iptables].filter((other) => other !== scripts);
      return { scripts, others };
    }
    reasons.push(`${scripts.name}: ${reason}`);
  }
  throw new MeshError('NETNS_RULES', `no rules for probes work here: ${reasons.join(' | ')}`);
}

/** Why the scripts do not work in a new namespace, where they disturb nobody; null when they do. */
async function failure(scripts: HostProbeScripts, lockDir: string): Promise<string | null> {
  const trap = `trap 'rm -f "$XTABLES_LOCKFILE"' EXIT`;
  const script = `set -e\n${trap}\n${scripts.write(TRIAL, DEFAULT_PROBE_ADDRESS)}${scripts.list}`;
  try {
    const listed = await runScript(script, {
      enter: ['unshare', '--net'],
      environment: { XTABLES_LOCKFILE: `${lockDir}/xtables-host-probe-${process.pid}.lock` },
    });
    return scripts.holds(listed, TRIAL) ? null : `the rules were not read back: ${listed}`;
  } catch (error) {
    return errorText(error);
  }
}
