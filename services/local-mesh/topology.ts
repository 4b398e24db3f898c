/** The plan of a local mesh: names and addresses, computed only from its name and size. */
import { createHash } from 'node:crypto';

/** Link addresses of nodes start at .11 and end at .254; one machine carries fewer nodes than that. */
export const MAX_NODES = 64;
/** Addresses of a /20 less network, gateway and broadcast. */
export const MAX_PODS_PER_NODE = 4_093;

/** An IPv4 and an IPv6 address. */
export interface AddressPair {
  readonly ipv4: string;
  readonly ipv6: string;
}

/** The namespace that holds Redis, control plane, CA and the bridge between the nodes. */
export interface ControlPlan {
  readonly netns: string;
  readonly controlPlane: AddressPair;
  readonly ca: AddressPair;
}

/** One node: a network namespace with a link to the others and a range of pod addresses. */
export interface NodePlan {
  readonly name: string;
  /** Counted from 1. */
  readonly index: number;
  readonly netns: string;
  readonly link: AddressPair;
  /** The pods' default gateway. */
  readonly gateway: AddressPair;
  readonly podRange: AddressPair;
}

/** A whole local mesh. */
export interface MeshPlan {
  readonly mesh: string;
  readonly control: ControlPlan;
  readonly nodes: readonly NodePlan[];
}

/** Ranges from which the control plane allocates VIPs. Only proxies route them. */
export const SERVICE_RANGE: AddressPair = { ipv4: '10.96.0.0/16', ipv6: 'fd00:96::/112' };
/** Prefix lengths of the link between the nodes. */
export const LINK_LENGTH = { ipv4: 24, ipv6: 64 } as const;
/** The node's address on each pod's veth; IPv6 needs a link-local next hop. */
export const NODE_LINK_LOCAL = 'fe80::1';

/** The plan of mesh `mesh` with `nodeCount` (1 to {@link MAX_NODES}) nodes. */
export function planMesh(mesh: string, nodeCount: number): MeshPlan {
  return {
    mesh,
    control: {
      netns: `${mesh}-ctl`,
      controlPlane: { ipv4: '10.200.0.2', ipv6: 'fd00:200::2' },
      ca: { ipv4: '10.200.0.3', ipv6: 'fd00:200::3' },
    },
    nodes: Array.from({ length: nodeCount }, (_, offset) => planNode(mesh, offset + 1)),
  };
}

function planNode(mesh: string, index: number): NodePlan {
  const name = `node-${index}`;
  const [second, third] = podRangeStart(index);
  const hex = index.toString(16);
  return {
    name,
    index,
    netns: `${mesh}-${name}`,
    link: { ipv4: `10.200.0.${10 + index}`, ipv6: `fd00:200::${(10 + index).toString(16)}` },
    gateway: { ipv4: `10.${second}.${third}.1`, ipv6: NODE_LINK_LOCAL },
    podRange: { ipv4: `10.${second}.${third}.0/20`, ipv6: `fd00:201:${hex}::/64` },
  };
}

/** Second and third byte of the node's /20: sixteen to each second byte, from 10.128. */
function podRangeStart(index: number): [second: number, third: number] {
  return [128 + Math.floor(index / 16), (index % 16) * 16];
}

/** The addresses of the pod in slot `slot` (from 0, below {@link MAX_PODS_PER_NODE}) of a node. */
export function podAddresses(node: NodePlan, slot: number): AddressPair {
  const [second, third] = podRangeStart(node.index);
  const host = slot + 2;
  return {
    ipv4: `10.${second}.${third + (host >> 8)}.${host & 0xff}`,
    ipv6: `fd00:201:${node.index.toString(16)}::${host.toString(16)}`,
  };
}

/** Longest namespace name without a hash; file names end at 255 bytes and messages should stay readable. */
const LONGEST_NETNS_NAME = 128;

/**
 * The network namespace of a pod: `<mesh>-<namespace>-<pod>`. A hash of the full name is appended when that name is too
 * long or taken (`a-b`/`c` and `a`/`b-c`).
 */
export function podNetns(
  mesh: string,
  namespace: string,
  pod: string,
  taken: (name: string) => boolean,
): string {
  const plain = `${mesh}-${namespace}-${pod}`;
  if (plain.length <= LONGEST_NETNS_NAME && !taken(plain)) return plain;
  const hash = shortHash(`${namespace}/${pod}`);
  return `${plain.slice(0, LONGEST_NETNS_NAME - hash.length - 1)}-${hash}`;
}

/** Interface name of the node's end of a pod's link: unique per pod, at most 15 characters. */
export function podLinkName(podUid: string): string {
  return `pod${shortHash(podUid)}`;
}

function shortHash(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 10);
}
