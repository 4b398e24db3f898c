/**
 * Makes the rules that redirect a pod's traffic to the node proxy (docs/spec/cni.md §5, docs/spec/inpod.md §5.1). Pure. Rules
 * have the words and order of `iptables-save`, so that written and read rules can be compared, and the words of nftables.
 */

/** The chains of the redirection; no others are touched. */
export const OWN_CHAINS = ['ISTIO_PRERT', 'ISTIO_OUTPUT'] as const;

/** A chain of {@link OWN_CHAINS}. */
export type OwnChain = (typeof OWN_CHAINS)[number];

/** The built-in chain that jumps to each of our chains. */
export const HOOKS = { ISTIO_PRERT: 'PREROUTING', ISTIO_OUTPUT: 'OUTPUT' } as const;

/** Tables with our chains, in the order of writing: replies can return before anything is redirected. */
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

/** Default source addresses of the node's probes; no pod has them. */
export const DEFAULT_PROBE_ADDRESS = {
  v4: '169.254.7.127',
  v6: 'fd16:9254:7127:1337:ffff:ffff:ffff:ffff',
} as const;

/** Policy routing of marked replies, the same for both families. */
export const POLICY_ROUTE = { priority: 32_764, mark: 0x111, mask: 0xfff, table: 100 } as const;

/** The options of a pod. */
export interface RedirectOptions {
  readonly ipv6: boolean;
  /** Sends DNS queries to the proxy's DNS port. */
  readonly dnsCapture: boolean;
  /** Lets plain inbound traffic reach the application directly. */
  readonly bypassInboundCapture: boolean;
  /** Interfaces whose incoming traffic counts as the pod's outbound traffic. */
  readonly virtualInterfaces: readonly string[];
  /** Source addresses of the node's probes, exempt from redirection. */
  readonly probeAddress: { readonly v4: string; readonly v6: string };
}

/** One rule of our chains. */
export interface Rule {
  readonly table: Table;
  readonly chain: OwnChain;
  /** Follows `-A <chain>` in the input of iptables-restore. */
  readonly text: string;
  /** The same rule in a table of nftables of its family. */
  readonly nft: string;
  /** Left out where the kernel has no conntrack zones; the other rules do not depend on it. */
  readonly needs?: 'zones';
}

/** All rules of one family, in order within each chain. A table without rules has none of our chains. */
export interface FamilyRules {
  readonly family: Family;
  readonly rules: readonly Rule[];
}

/** SO_MARK of the proxy's sockets. Rules look at its low twelve bits. */
export const PROXY_PACKET_MARK = 0x539;

/**
 * SO_MARK of the proxy's sockets that use the client's address. It adds a bit to {@link PROXY_PACKET_MARK} that other rules do
 * not look at. Only these sockets are tracked in a conntrack zone of their own, each from its first packet on.
 */
export const KEPT_SOURCE_MARK = 0x1539;

/** The first mark is that of the proxy's sockets, the other that of its connections to the application. */
const PROXY_MARK = '0x539/0xfff';
const REPLY_MARK = '0x111/0xfff';
const NFT_PROXY = 'meta mark & 0xfff == 0x539';
const NFT_NOT_PROXY = 'meta mark & 0xfff != 0x539';
const NFT_TCP = 'meta l4proto tcp';

/** The rule that puts sockets of {@link KEPT_SOURCE_MARK} in their zone; the kernel needs conntrack zones for it. */
export const KEPT_SOURCE_ZONE = '-p tcp -m mark --mark 0x1539/0x1fff -j CT --zone-orig 2';

/** Returns the rules of a pod, IPv4 first. */
export function redirectRules(options: RedirectOptions): readonly FamilyRules[] {
  const v4 = familyRules(4, options);
  return options.ipv6 ? [v4, familyRules(6, options)] : [v4];
}

/** The addresses that rules of a family name. */
interface Names {
  readonly loopback: string;
  readonly probe: string;
  /** The same for nftables. */
  readonly nft: { readonly header: string; readonly loopback: string; readonly probe: string };
}

function familyRules(family: Family, options: RedirectOptions): FamilyRules {
  const [bits, loopback, probe, header] =
    family === 4
      ? (['32', '127.0.0.1', options.probeAddress.v4, 'ip'] as const)
      : (['128', '::1', options.probeAddress.v6, 'ip6'] as const);
  const names = {
    loopback: `${loopback}/${bits}`,
    probe: `${probe}/${bits}`,
    nft: { header, loopback, probe },
  };
  return {
    family,
    rules: [
      ...(options.dnsCapture ? dnsZoneRules() : []),
      ...keptSourceZoneRules(),
      ...replyMarkRules(),
      ...inboundRules(options, names),
      ...outboundRules(options, names),
    ],
  };
}

/** Marks connections that the proxy opened with a foreign source, so that their replies return to it. */
function replyMarkRules(): Rule[] {
  return [
    {
      table: 'mangle',
      chain: 'ISTIO_PRERT',
      text: `-m mark --mark ${PROXY_MARK} -j CONNMARK --set-xmark ${REPLY_MARK}`,
      nft: `${NFT_PROXY} counter ct mark set ct mark & 0xfffff000 | 0x111`,
    },
    {
      table: 'mangle',
      chain: 'ISTIO_OUTPUT',
      text: `-m connmark --mark ${REPLY_MARK} -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff`,
      nft: 'ct mark & 0xfff == 0x111 counter meta mark set ct mark',
    },
  ];
}

/** A rule in both languages. */
type Words = readonly [text: string, nft: string];

function inboundRules(options: RedirectOptions, { loopback, probe, nft }: Names): Rule[] {
  const { outbound, inbound, hbone } = PROXY_PORTS;
  const words = options.virtualInterfaces.flatMap((name): readonly Words[] => {
    const device = `iifname "${name.replace(/\+$/, '*')}" ${NFT_TCP} counter`;
    return [
      [
        `-i ${name} -p tcp -j REDIRECT --to-ports ${outbound}`,
        `${device} redirect to :${outbound}`,
      ],
      [`-i ${name} -p tcp -j RETURN`, `${device} return`],
    ];
  });
  if (!options.bypassInboundCapture) {
    words.push(
      [
        `-s ${probe} -p tcp -j ACCEPT`,
        `${nft.header} saddr ${nft.probe} ${NFT_TCP} counter accept`,
      ],
      // HBONE needs no redirection: a proxy socket listens at its port.
      [
        `! -d ${loopback} -p tcp -m tcp ! --dport ${hbone} -m mark ! --mark ${PROXY_MARK} -j REDIRECT --to-ports ${inbound}`,
        `${nft.header} daddr != ${nft.loopback} tcp dport != ${hbone} ${NFT_NOT_PROXY} counter redirect to :${inbound}`,
      ],
    );
  }
  return words.map(([text, native]) => ({
    table: 'nat',
    chain: 'ISTIO_PRERT',
    text,
    nft: native,
  }));
}

function outboundRules(options: RedirectOptions, { loopback, probe, nft }: Names): Rule[] {
  const { outbound, dns } = PROXY_PORTS;
  const foreign = `${nft.header} daddr != ${nft.loopback}`;
  const words: Words[] = [
    [`-d ${probe} -p tcp -j ACCEPT`, `${nft.header} daddr ${nft.probe} ${NFT_TCP} counter accept`],
  ];
  if (options.dnsCapture) {
    words.push(
      [
        `! -o lo -p udp -m udp --dport 53 -m mark ! --mark ${PROXY_MARK} -j REDIRECT --to-ports ${dns}`,
        `oifname != "lo" udp dport 53 ${NFT_NOT_PROXY} counter redirect to :${dns}`,
      ],
      [
        `! -d ${loopback} -p tcp -m tcp --dport 53 -m mark ! --mark ${PROXY_MARK} -j REDIRECT --to-ports ${dns}`,
        `${foreign} tcp dport 53 ${NFT_NOT_PROXY} counter redirect to :${dns}`,
      ],
    );
  }
  words.push(
    // Replies of inbound connections and calls to the pod's own address are not outbound traffic.
    [
      `-p tcp -m mark --mark ${REPLY_MARK} -j ACCEPT`,
      `${NFT_TCP} meta mark & 0xfff == 0x111 counter accept`,
    ],
    [`! -d ${loopback} -o lo -j ACCEPT`, `${foreign} oifname "lo" counter accept`],
    [
      `! -d ${loopback} -p tcp -m mark ! --mark ${PROXY_MARK} -j REDIRECT --to-ports ${outbound}`,
      `${foreign} ${NFT_TCP} ${NFT_NOT_PROXY} counter redirect to :${outbound}`,
    ],
  );
  return words.map(([text, native]) => ({
    table: 'nat',
    chain: 'ISTIO_OUTPUT',
    text,
    nft: native,
  }));
}

/** Puts the proxy's own queries in a conntrack zone, where their ports cannot collide with the pod's. */
function dnsZoneRules(): Rule[] {
  return [
    {
      table: 'raw',
      chain: 'ISTIO_OUTPUT',
      text: `-p udp -m udp --dport 53 -m mark --mark ${PROXY_MARK} -j CT --zone 1`,
      nft: `udp dport 53 ${NFT_PROXY} counter ct zone set 1`,
    },
    {
      table: 'raw',
      chain: 'ISTIO_PRERT',
      text: `-p udp -m udp --sport 53 -m mark ! --mark ${PROXY_MARK} -j CT --zone 1`,
      nft: `udp sport 53 ${NFT_NOT_PROXY} counter ct zone set 1`,
    },
  ];
}

/**
 * Puts connections that the proxy opens with the client's address in a conntrack zone. They share the client's port space:
 * without the zone, a later connection of the client from the same port would count as part of them and escape redirection.
 * Only the direction towards the application has the zone; replies, which carry no mark yet, stay in the default zone.
 */
function keptSourceZoneRules(): Rule[] {
  return [
    {
      table: 'raw',
      chain: 'ISTIO_OUTPUT',
      text: KEPT_SOURCE_ZONE,
      nft: `${NFT_TCP} meta mark & 0x1fff == 0x1539 counter ct original zone set 2`,
      needs: 'zones',
    },
  ];
}
