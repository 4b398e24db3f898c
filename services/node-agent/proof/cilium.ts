/** Names the options of Cilium under which a mesh does not work. Pure. */
import * as z from 'zod';

/** Where Cilium keeps its options. */
export const CILIUM_CONFIG = { namespace: 'kube-system', name: 'cilium-config' } as const;

const configSchema = z.object({ data: z.record(z.string(), z.string()).default({}) });
const ON = new Set(['true', 'strict']);

/** Returns what is wrong in Cilium's ConfigMap. Throws a ZodError for what is none. */
export function ciliumConflicts(configMap: unknown): readonly string[] {
  const { data } = configSchema.parse(configMap);
  const on = (option: string): boolean => ON.has(data[option] ?? '');
  const conflicts: string[] = [];
  if (on('cni-exclusive')) {
    conflicts.push('Cilium puts the lists of other CNI plugins away: set cni.exclusive=false');
  }
  if ((on('bpf-lb-sock') || on('kube-proxy-replacement')) && !on('bpf-lb-sock-hostns-only')) {
    conflicts.push(
      'Cilium replaces addresses of Services before the redirection sees them: set socketLB.hostNamespaceOnly=true',
    );
  }
  if (on('enable-bpf-masquerade')) {
    conflicts.push(
      "Cilium drops the answers to kubelet's probes from their link-local address: set bpf.masquerade=false",
    );
  }
  return conflicts;
}
