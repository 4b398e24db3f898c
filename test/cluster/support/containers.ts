/** Weft's running containers, as the kernel knows them. */
import { SYSTEM } from './weft.ts';
import type { TestCluster } from './cluster.ts';

/** A container of the release's namespace. */
export interface WeftContainer {
  readonly pod: string;
  readonly name: string;
  /** Its memory request in bytes. */
  readonly memoryRequest: number;
}

interface Pods {
  readonly items: readonly {
    readonly metadata: { readonly name: string; readonly deletionTimestamp?: string };
    readonly spec: {
      readonly containers: readonly {
        readonly name: string;
        readonly resources: { readonly requests: { readonly memory: string } };
      }[];
    };
  }[];
}

/** The limits of the first process of a container. */
export interface Confinement {
  /** Fields of `/proc/1/status`. */
  readonly status: ReadonlyMap<string, string>;
  /** Mounts that may be written to; the root is `/`. */
  readonly writable: readonly string[];
}

/** All containers of Weft's pods; none of a pod that ends. */
export async function weftContainers(cluster: TestCluster): Promise<readonly WeftContainer[]> {
  const { items } = (await cluster.objects.admin.get(`/api/v1/namespaces/${SYSTEM}/pods`)) as Pods;
  const lasting = items.filter(({ metadata }) => metadata.deletionTimestamp === undefined);
  return lasting.flatMap(({ metadata, spec }) =>
    spec.containers.map(({ name, resources }) => ({
      pod: metadata.name,
      name,
      memoryRequest: bytes(resources.requests.memory),
    })),
  );
}

/** Runs a command in a container; returns its output. */
export function inContainer(
  cluster: TestCluster,
  { pod, name }: Pick<WeftContainer, 'pod' | 'name'>,
  ...words: readonly string[]
): Promise<string> {
  return cluster.kubectl('-n', SYSTEM, 'exec', pod, '-c', name, '--', ...words);
}

/** Reads how a container is confined. */
export async function confinementOf(
  cluster: TestCluster,
  container: WeftContainer,
): Promise<Confinement> {
  const status = await inContainer(cluster, container, 'cat', '/proc/1/status');
  const mounts = await inContainer(cluster, container, 'cat', '/proc/1/mountinfo');
  return {
    status: new Map(
      [...status.matchAll(/^(\w+):\s*(.*)$/gm)].map(([, key = '', value = '']) => [key, value]),
    ),
    // Field 5 is the place, field 6 the options of this mount.
    writable: mounts
      .trim()
      .split('\n')
      .map((line) => line.split(' '))
      .filter((fields) => fields[5]?.split(',').includes('rw'))
      .map((fields) => fields[4] ?? ''),
  };
}

/** Memory of a container in bytes: what its processes hold, and with the page cache in use, as kubelet counts it. */
export async function memoryOf(
  cluster: TestCluster,
  container: WeftContainer,
): Promise<{ readonly held: number; readonly workingSet: number }> {
  const group = '/sys/fs/cgroup/memory';
  const files = [`${group}/memory.usage_in_bytes`, `${group}/memory.stat`];
  const said = await inContainer(cluster, container, 'cat', ...files);
  const number = (pattern: RegExp): number => Number(pattern.exec(said)?.[1]);
  return {
    held: number(/^total_rss (\d+)$/m),
    workingSet: number(/^(\d+)\n/) - number(/^total_inactive_file (\d+)$/m),
  };
}

const UNITS: Readonly<Record<string, number>> = { Mi: 2 ** 20, Gi: 2 ** 30 };

function bytes(quantity: string): number {
  const [, number = '', unit = ''] = /^(\d+)(Mi|Gi)$/.exec(quantity) ?? [];
  return Number(number) * (UNITS[unit] ?? Number.NaN);
}
