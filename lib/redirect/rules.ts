/**
 * Which rules redirect a pod's traffic to the node proxy (docs/spec/cni.md §5, docs/spec/inpod.md §5.1). Pure; rule texts
 * are in the words and order that `iptables-save` prints, so that what is written can be compared with what is read.
 */

/** The chains that belong to the redirection; nobody else's are touched. */
export const OWN_CHAINS = ['ISTIO_PRERT', 'ISTIO_OUTPUT'] as const;

/** A chain of {@link OWN_CHAINS}. */
export type OwnChain = (typeof OWN_CHAINS)[number];

/** The built-in chain from which each own chain is entered. */
export const HOOKS = { ISTIO_PRERT: 'PREROUTING', ISTIO_OUTPUT: 'OUTPUT' } as const;

/** Tables that may hold own chains, in the order they are written: nothing is redirected before replies find back. */
export const TABLES = ['raw', 'mangle', 'nat'] as const;

/** A table of {@link TABLES}. */
export type Table = (typeof TABLES)[number];

/** Address family. */
export type Family = 4 | 6;

/** Ports of the node proxy inside the pod. */
export const PROXY_PORTS = {
  outbound: 15_001,
  inbound: 15_006,
  hbone: 15_008,
  dns: 15_053,
} as const;

/** Where probes of the node come from unless settings say otherwise: addresses that no pod has. */
export const DEFAULT_PROBE_ADDRESS = {
  v4: '169.254.7.127',
  v6: 'fd16:9254:7127:1337:ffff:ffff:ffff:ffff',
} as const;

/** Policy routing of marked replies: both families alike. */
export const POLICY_ROUTE = { priority: 32_764, mark: 0x111, mask: 0xfff, table: 100 } as const;

/** What varies between pods. */
export interface RedirectOptions {
  readonly ipv6: boolean;
  /** Queries go to the proxy's DNS port. Off until a proxy serves it. */
  readonly dnsCapture: boolean;
  /** Plain inbound traffic reaches the application directly. */
  readonly bypassInboundCapture: boolean;
  /** Traffic that enters by these interfaces counts as the pod's outbound traffic. */
  readonly virtualInterfaces: readonly string[];
  /** Addresses that probes of the node come from; exempt from redirection. */
  readonly probeAddress: { readonly v4: string; readonly v6: string };
}

/** One rule of an own chain: what follows `-A <chain>`. */
export interface Rule {
  readonly table: Table;
  readonly chain: OwnChain;
  readonly text: string;
  /** Left out where the kernel has no conntrack zones; without it the rest works as it would. */
  readonly needs?: 'zones';
}

/** All rules of one family, in order within each chain. A table without rules holds no own chain. */
export interface FamilyRules {
  readonly family: Family;
  readonly rules: readonly Rule[];
}

/** SO_MARK of the proxy's sockets, as redirection knows it. Rules look at its low twelve bits. */
export const PROXY_PACKET_MARK = 0x539;

/**
 * SO_MARK of the proxy's sockets that appear as the client. A bit more than {@link PROXY_PACKET_MARK}, beyond what other rules
 * look at, so that these alone are tracked in a zone of their own, each from its first packet on.
 */
export const KEPT_SOURCE_MARK = 0x1539;

/** The proxy's sockets carry this mark; connections it opened to the application carry the other. */
const PROXY_MARK = '0x539/0xfff';
const REPLY_MARK = '0x111/0xfff';

/** The rule that tracks sockets of {@link KEPT_SOURCE_MARK} apart, for which a kernel needs conntrack zones. */
export const KEPT_SOURCE_ZONE = '-p tcp -m mark --mark 0x1539/0x1fff -j CT --zone-orig 2';

/** The rules of a pod, IPv4 first. */
export function redirectRules(options: RedirectOptions): readonly FamilyRules[] {
  const v4 = familyRules(4, options);
  return options.ipv6 ? [v4, familyRules(6, options)] : [v4];
}

function familyRules(family: Family, options: RedirectOptions): FamilyRules {
  const loopback = family === 4 ? '127.0.0.1/32' : '::1/128';
  const probe = family === 4 ? `${options.probeAddress.v4}/32` : `${options.probeAddress.v6}/128`;
  return {
    family,
    rules: [
      ...(options.dnsCapture ? dnsZoneRules() : []),
      ...keptSourceZoneRules(),
      ...replyMarkRules(),
      ...inboundRules(options, loopback, probe),
      ...outboundRules(options, loopback, probe),
    ],
  };
}

/** Connections that the proxy opened with a foreign source are remembered, so that replies come back to it. */
function replyMarkRules(): Rule[] {
  return [
    {
      table: 'mangle',
      chain: 'ISTIO_PRERT',
      text: `-m mark --mark ${PROXY_MARK} -j CONNMARK --set-xmark ${REPLY_MARK}`,
    },
    {
      table: 'mangle',
      chain: 'ISTIO_OUTPUT',
      text: `-m connmark --mark ${REPLY_MARK} -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff`,
    },
  ];
}

function inboundRules(options: RedirectOptions, loopback: string, probe: string): Rule[] {
  const { outbound, inbound, hbone } = PROXY_PORTS;
  const texts = options.virtualInterfaces.flatMap((name) => [
    `-i ${name} -p tcp -j REDIRECT --to-ports ${outbound}`,
    `-i ${name} -p tcp -j RETURN`,
  ]);
  if (!options.bypassInboundCapture) {
    texts.push(
      `-s ${probe} -p tcp -j ACCEPT`,
      // HBONE arrives at its port directly: a proxy socket listens there.
      `! -d ${loopback} -p tcp -m tcp ! --dport ${hbone} -m mark ! --mark ${PROXY_MARK} -j REDIRECT --to-ports ${inbound}`,
    );
  }
  return texts.map((text) => ({ table: 'nat', chain: 'ISTIO_PRERT', text }));
}

function outboundRules(options: RedirectOptions, loopback: string, probe: string): Rule[] {
  const { outbound, dns } = PROXY_PORTS;
  const texts = [`-d ${probe} -p tcp -j ACCEPT`];
  if (options.dnsCapture) {
    texts.push(
      `! -o lo -p udp -m udp --dport 53 -m mark ! --mark ${PROXY_MARK} -j REDIRECT --to-ports ${dns}`,
      `! -d ${loopback} -p tcp -m tcp --dport 53 -m mark ! --mark ${PROXY_MARK} -j REDIRECT --to-ports ${dns}`,
    );
  }
  texts.push(
    // Replies of inbound connections are no outbound traffic; neither is a call to the pod's own address.
    `-p tcp -m mark --mark ${REPLY_MARK} -j ACCEPT`,
    `! -d ${loopback} -o lo -j ACCEPT`,
    `! -d ${loopback} -p tcp -m mark ! --mark ${PROXY_MARK} -j REDIRECT --to-ports ${outbound}`,
  );
  return texts.map((text) => ({ table: 'nat', chain: 'ISTIO_OUTPUT', text }));
}

/** The proxy's own queries live in a conntrack zone apart, where their ports cannot clash with the pod's. */
function dnsZoneRules(): Rule[] {
  return [
    {
      table: 'raw',
      chain: 'ISTIO_OUTPUT',
      text: `-p udp -m udp --dport 53 -m mark --mark ${PROXY_MARK} -j CT --zone 1`,
    },
    {
      table: 'raw',
      chain: 'ISTIO_PRERT',
      text: `-p udp -m udp --sport 53 -m mark ! --mark ${PROXY_MARK} -j CT --zone 1`,
    },
  ];
}

/**
 * A connection that the proxy opens with the client's address has that client's port space: without a zone of its own, a later
 * connection of the client from the same port would be taken for part of it and escape redirection. Only the direction
 * towards the application is apart; its replies, which nobody marked yet, are found where they always were.
 */
function keptSourceZoneRules(): Rule[] {
  return [
    {
      table: 'raw',
      chain: 'ISTIO_OUTPUT',
      text: KEPT_SOURCE_ZONE,
      needs: 'zones',
    },
  ];
}
