/** The network of a cluster: a bridge that joins the nodes, and the range of pods that each node routes. */
import type { TeardownOwner } from '../../support/actor-context.ts';
import { connectNetns, createHub, createNetns } from '../../support/netns-kit.ts';
import type { TestNetns } from '../../support/netns-kit.ts';

/** The API server's address. */
export const SERVER_ADDRESS = '10.88.0.254';
const SERVER_ADDRESS_V6 = 'fd88::fe';
/** Where pods ask for names. */
export const DNS_ADDRESS = '10.96.0.10';
/** All pods, per family. */
export const POD_RANGES: readonly string[] = ['10.89.0.0/16', 'fd89::/48'];

/** A node's place. */
export interface NodePlace {
  readonly name: string;
  readonly netns: TestNetns;
  readonly addresses: readonly string[];
  /** Ranges of its pods, per family. */
  readonly podRanges: readonly string[];
}

/** The network. Traffic between the nodes passes the device `br0` of {@link hub}, which also holds the control plane. */
export interface ClusterNetwork {
  readonly hub: TestNetns;
  readonly nodes: readonly NodePlace[];
}

/** Makes it with two nodes; the owner's end removes it. */
export async function createNetwork(t: TeardownOwner): Promise<ClusterNetwork> {
  const hub = await createHub(t, [`${SERVER_ADDRESS}/24`, `${SERVER_ADDRESS_V6}/64`]);
  const nodes = [];
  for (const number of [1, 2]) {
    const netns = await createNetns(t, `node${number}`);
    const name = `node-${number}`;
    const addresses = [`10.88.0.${number}`, `fd88::${number}`];
    const podRanges = [`10.89.${number}.0/24`, `fd89:0:0:${number}::/64`];
    await connectNetns(
      {
        netns,
        device: 'eth0',
        addresses: [`${addresses[0]}/24`, `${addresses[1]}/64`],
        gateways: [SERVER_ADDRESS, SERVER_ADDRESS_V6],
      },
      { netns: hub, device: name, addresses: [], bridge: 'br0' },
    );
    nodes.push({ name, netns, addresses, podRanges });
  }
  for (const { netns, addresses, podRanges } of nodes) {
    const others = [hub, ...nodes.map((node) => node.netns).filter((other) => other !== netns)];
    for (const other of others) {
      for (const [index, range] of podRanges.entries()) {
        await other.ip(`route add ${range} via ${addresses[index]}`);
      }
    }
  }
  return { hub, nodes };
}
