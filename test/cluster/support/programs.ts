/** The programs of a cluster, built from their Go modules. */
import { cniPrograms } from '../../cni/support/programs.ts';
import { kubernetesProgram, kubernetesPrograms } from '../../kubernetes/support/programs.ts';
import { buildGoProgram } from '../../support/go-program.ts';

const COREDNS_BUILD_TIMEOUT_MS = 300_000;

/** Paths of the programs. */
export interface ClusterPrograms {
  readonly etcd: string;
  readonly apiServer: string;
  readonly controllerManager: string;
  readonly scheduler: string;
  readonly kubelet: string;
  readonly kubeProxy: string;
  readonly kubectl: string;
  readonly coredns: string;
  /** CNI plugins by their names. */
  readonly plugins: Readonly<Record<string, string>>;
}

const COMMANDS = {
  controllerManager: 'kube-controller-manager',
  scheduler: 'kube-scheduler',
  kubelet: 'kubelet',
  kubeProxy: 'kube-proxy',
  kubectl: 'kubectl',
} as const;

/** Builds what is not built yet. `missing` says why there is no cluster. */
export async function clusterPrograms(): Promise<ClusterPrograms | { readonly missing: string }> {
  const server = await kubernetesPrograms();
  if ('missing' in server) return server;
  const commands: Record<string, string> = {};
  for (const [key, name] of Object.entries(COMMANDS)) {
    const program = await kubernetesProgram(name, `k8s.io/kubernetes/cmd/${name}`);
    if ('missing' in program) return program;
    commands[key] = program.path;
  }
  const coredns = await buildGoProgram({
    name: 'coredns',
    folder: new URL('../coredns/', import.meta.url).pathname,
    package: '.',
    cache: 'cluster',
    ldflags: '-s -w',
    // Runs in an image that holds nothing else.
    linked: 'static',
    timeoutMs: COREDNS_BUILD_TIMEOUT_MS,
  });
  if ('missing' in coredns) return coredns;
  const plugins = await cniPrograms();
  if ('missing' in plugins) return plugins;
  const { etcd, apiServer } = server;
  return {
    etcd,
    apiServer,
    ...(commands as Record<keyof typeof COMMANDS, string>),
    coredns: coredns.path,
    plugins: { ...plugins },
  };
}
