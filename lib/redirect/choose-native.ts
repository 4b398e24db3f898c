/** Tries native nftables. */
import { errorText } from '../errors/mesh-error.ts';
import type { ChosenTools } from './flavour.ts';
import { NativeWords } from './native-words.ts';
import { DEFAULT_PROBE_ADDRESS, redirectRules } from './rules.ts';
import type { FamilyRules } from './rules.ts';

/** Every kind of rule. */
const ALL = {
  dnsCapture: true,
  bypassInboundCapture: false,
  virtualInterfaces: ['eth0', 'tap+'],
  probeAddress: DEFAULT_PROBE_ADDRESS,
};

/** Writes all kinds of rules to a new namespace. Returns the tools, or the reason why nftables cannot hold the rules here. */
export async function chooseNative(
  ipv6: boolean,
): Promise<ChosenTools | { readonly reason: string }> {
  const rules = redirectRules({ ...ALL, ipv6 });
  const tools = { flavour: 'native', ipv6 } as const;
  const noZones = await failure(rules);
  if (noZones === null) return { ...tools, zones: true, noZones };
  const reason = await failure(
    rules.map((family) => ({
      ...family,
      rules: family.rules.filter((rule) => rule.needs !== 'zones'),
    })),
  );
  return reason === null ? { ...tools, zones: false, noZones } : { reason };
}

async function failure(rules: readonly FamilyRules[]): Promise<string | null> {
  try {
    await new NativeWords().of(rules);
    return null;
  } catch (error) {
    return errorText(error);
  }
}
