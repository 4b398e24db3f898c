/** The network namespaces of control plane and nodes, and the link between them. */
import { ipBatch, runCommand } from './run-command.ts';
import { LINK_LENGTH, SERVICE_RANGE } from './topology.ts';
import type { MeshPlan, NodePlan } from './topology.ts';

/** Directory in which `ip netns` keeps its namespaces. */
export const NETNS_DIR = '/run/netns';
const BRIDGE = 'br0';

/** The file that holds a named network namespace. */
export function netnsPath(name: string): string {
  return `${NETNS_DIR}/${name}`;
}

/** Makes the namespaces, bridge, links, addresses and routes of a mesh. Throws NETNS_UNAVAILABLE. */
export async function createMeshNamespaces(plan: MeshPlan): Promise<void> {
  const { control, nodes } = plan;
  await ipBatch(
    null,
    [control.netns, ...nodes.map((node) => node.netns)].map((name) => `netns add ${name}`),
  );
  await ipBatch(control.netns, controlLinks(plan));
  await Promise.all(
    nodes.map(async (node) => {
      await allowForwarding(node.netns);
      await ipBatch(node.netns, nodeLinks(plan, node));
    }),
  );
}

/** Commands for the control namespace: the bridge, a port for each node, and the way to the pods. */
export function controlLinks(plan: MeshPlan): string[] {
  const { control, nodes } = plan;
  const addresses = [control.controlPlane, control.ca].flatMap((pair) => [
    `addr add ${pair.ipv4}/${LINK_LENGTH.ipv4} dev ${BRIDGE}`,
    `addr add ${pair.ipv6}/${LINK_LENGTH.ipv6} dev ${BRIDGE} nodad`,
  ]);
  const ports = nodes.flatMap((node) => [
    `link add name ${node.name} type veth peer name eth0 netns ${node.netns}`,
    `link set dev ${node.name} master ${BRIDGE}`,
    `link set dev ${node.name} up`,
  ]);
  return [
    'link set dev lo up',
    `link add name ${BRIDGE} type bridge`,
    `link set dev ${BRIDGE} up`,
    ...addresses,
    ...ports,
    ...nodes.flatMap((node) => routesTo(node, BRIDGE)),
  ];
}

/** Commands for a node: its address on the link, the pods' gateway, and the way to the other nodes' pods. */
export function nodeLinks(plan: MeshPlan, node: NodePlan): string[] {
  const others = plan.nodes.filter((other) => other !== node);
  return [
    'link set dev lo up',
    // The gateway answers ARP on every pod's link, but it is no address of the node.
    `addr add ${node.gateway.ipv4}/32 dev lo`,
    'link set dev eth0 up',
    `addr add ${node.link.ipv4}/${LINK_LENGTH.ipv4} dev eth0`,
    `addr add ${node.link.ipv6}/${LINK_LENGTH.ipv6} dev eth0 nodad`,
    ...others.flatMap((other) => routesTo(other, 'eth0')),
    // Only a proxy translates VIPs. Without one, refuse at once instead of letting clients wait.
    `route add unreachable ${SERVICE_RANGE.ipv4}`,
    `route add unreachable ${SERVICE_RANGE.ipv6}`,
  ];
}

function routesTo(node: NodePlan, device: string): string[] {
  return [
    `route add ${node.podRange.ipv4} via ${node.link.ipv4} dev ${device}`,
    `route add ${node.podRange.ipv6} via ${node.link.ipv6} dev ${device}`,
  ];
}

/** Lets a namespace route between its links. /proc/sys/net shows the settings of the opener's namespace. */
async function allowForwarding(netns: string): Promise<void> {
  const settings = ['ipv4/ip_forward', 'ipv6/conf/all/forwarding'];
  const script = settings.map((name) => `echo 1 >/proc/sys/net/${name}`).join(' && ');
  await runCommand('nsenter', [`--net=${netnsPath(netns)}`, 'sh', '-c', script]);
}
