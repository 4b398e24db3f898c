/** Finds the traces of a mesh on a cluster. */
import type { TestCluster } from './cluster.ts';
import type { ClusterNode } from './node.ts';

/** Files of the folders that a mesh writes to, and all rules of the node and of its pods. */
const SCRIPT = `
find /etc/cni /opt/cni /run/istio-cni /run/ztunnel /run/weft /var/lib/weft ! -type d 2>/dev/null
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

interface Marked {
  readonly items: readonly {
    readonly metadata: {
      readonly name: string;
      readonly annotations?: Readonly<Record<string, string>>;
    };
    readonly spec: { readonly taints?: readonly { readonly key: string }[] };
  }[];
}

/** Nodes, and pods of a namespace, with an annotation or a taint of a mesh, with those. */
export async function marks(
  { objects }: TestCluster,
  namespace: string,
): Promise<readonly string[]> {
  const found: string[] = [];
  for (const path of [`/api/v1/namespaces/${namespace}/pods`, '/api/v1/nodes']) {
    const { items } = (await objects.admin.get(path)) as Marked;
    for (const { metadata, spec } of items) {
      const keys = [
        ...Object.keys(metadata.annotations ?? {}),
        ...(spec.taints ?? []).map(({ key }) => key),
      ];
      const ours = keys.filter((key) => /istio\.io|weft/.test(key));
      found.push(...ours.map((key) => `${metadata.name}: ${key}`));
    }
  }
  return found;
}
