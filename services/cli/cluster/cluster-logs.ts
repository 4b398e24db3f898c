/** Logs of Weft's pods, from the API server. */
import { UsageError } from '../../../lib/errors/usage-error.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { isCode } from '../../../lib/kubernetes/status.ts';
import { ACTORS } from '../../local-mesh/actors.ts';
import { splitLines } from '../../../lib/http/split-lines.ts';
import { warn, write } from '../output.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import type { ClusterMesh } from './cluster-mesh.ts';
import { hosts } from './weft-pods.ts';
import type { WeftPod } from './weft-pods.ts';

/** The container of Redis, in a pod that has others. */
const REDIS = 'redis';

/** A mesh whose logs are read. */
export interface LoggedMesh extends Pick<ClusterMesh, 'weftPods'> {
  readonly access: {
    readonly client: Pick<KubernetesClient, 'stream'>;
    readonly namespace: string;
  };
}

/** The pods that `wanted` names: `<role>`, `<node>/<role>` or `<role>.<node>`; all without a name. Throws UsageError. */
export function choosePods(
  pods: readonly WeftPod[],
  wanted: string | undefined,
): readonly WeftPod[] {
  if (wanted === undefined) return pods;
  const found = pods.filter((pod) =>
    rolesOf(pod).some((role) =>
      [role, `${pod.node}/${role}`, `${role}.${pod.node}`].includes(wanted),
    ),
  );
  if (found.length > 0) return found;
  const roles = [...new Set(pods.map(({ role }) => role))].sort().join(', ');
  throw new UsageError(`no pod of ${JSON.stringify(wanted)}; there are ${roles}`);
}

function rolesOf(pod: WeftPod): readonly string[] {
  return [pod.role, ...ACTORS.filter((role) => hosts(pod, role))];
}

/** Prints the logs, each line with the name of its pod when there are several. Throws KUBERNETES_REFUSED that names the right. */
export async function printLogs(
  mesh: LoggedMesh,
  wanted: string | undefined,
  follow: boolean,
): Promise<void> {
  const pods = choosePods(mesh.weftPods, wanted).filter(({ running }) => running);
  const single = pods.length === 1 && wanted !== undefined;
  const print = async (pod: WeftPod): Promise<void> => {
    try {
      for await (const line of linesOf(mesh, pod, follow)) {
        await write(
          single
            ? `${line}\n`
            : `${pod.role}${pod.node === null ? '' : `.${pod.node}`} | ${line}\n`,
        );
      }
    } catch (error) {
      if (isCode(error, 'KUBERNETES_REFUSED')) throw refused(mesh, error);
      warn(`the log of ${pod.name} is missing: ${errorText(error)}`);
    }
  };
  if (follow) await Promise.all(pods.map(print));
  else for (const pod of pods) await print(pod);
}

async function* linesOf(
  { access }: LoggedMesh,
  { name, containers }: WeftPod,
  follow: boolean,
): AsyncGenerator<string> {
  const { client, namespace } = access;
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(name)}/log`;
  const container = containers.find((one) => one !== REDIS) ?? REDIS;
  const query = { container, ...(follow ? { follow: 'true' } : {}) };
  // A role may have nothing to tell for hours.
  const patience = follow ? { silenceMs: 0 } : {};
  yield* splitLines(await client.stream({ path, query, ...patience }));
}

function refused({ access }: LoggedMesh, error: MeshError): MeshError {
  const why = `${error.message}; it needs the right "get" for pods/log in namespace ${access.namespace}`;
  return new MeshError('KUBERNETES_REFUSED', why, { cause: error });
}
