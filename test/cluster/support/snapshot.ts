/** Finds the traces of a mesh on a node. */
import type { ClusterNode } from './node.ts';

/** Files of the folders that a mesh writes to, and all rules of the node and of its pods. */
const SCRIPT = `
find /etc/cni /opt/cni /run/istio-cni /run/ztunnel /run/weft ! -type d 2>/dev/null
for netns in /proc/1/ns/net /run/netns/*; do
  nsenter --net="$netns" sh -c '
    iptables-save; ip6tables-save; ip rule; ip -6 rule; ip route show table all; ip -6 route show table all; ipset list -n; nft list tables
  ' 2>/dev/null | grep -Ei "istio|ztunnel|weft|fwmark|local (default|0.0.0.0/0)" | grep -Ev "KUBE-|ip (filter|nat|mangle)" | sed "s|^|$netns: |"
done
exit 0
`;

/** Everything on a node that looks like a mesh's, one thing a line. */
export async function traces(node: ClusterNode): Promise<readonly string[]> {
  const said = await node.exec('sh', '-c', SCRIPT);
  return said.split('\n').filter((line) => line !== '');
}
