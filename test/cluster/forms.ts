/** Installs other forms of the chart than the default on a running cluster. */
import type { ExecutionContext } from 'ava';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { until } from '../support/until.ts';
import { SECRETS, makeSecrets, offerVolume, removeSecrets } from './support/central-redis.ts';
import type { TestCluster } from './support/cluster.ts';
import { inContainer } from './support/containers.ts';
import { podsOf } from './support/pods.ts';
import { SYSTEM, installWeft, leave, uninstallWeft } from './support/weft.ts';
import { enrolRunning, resources } from './mesh.ts';
import { confined, restricted } from './security.ts';

const TAINT = 'cni.istio.io/not-ready';
/** Roles that fit Pod Security's level `restricted` where the chart runs one Redis for all nodes. */
const SHARED_FITTING = [
  'weft-ca',
  'weft-cert-fetcher',
  'weft-control-plane',
  'weft-policy-evaluator',
  'weft-redis',
  'weft-xds-ingester',
];

/** The cluster, Helm, and namespaces with pods that no mesh has. */
export interface FormPlace {
  readonly cluster: TestCluster;
  readonly helm: string;
  readonly inside: string;
  readonly outside: string;
}

/** Checks a form that is installed: it is confined, running pods enter the mesh, and resources take effect. */
async function works(t: ExecutionContext, { cluster, inside, outside }: FormPlace): Promise<void> {
  await confined(t, cluster);
  await enrolRunning(t, cluster, inside);
  await resources(t, cluster, { inside, outside });
}

/** Checks the form with all roles of a node in one pod, on nodes that let no pod in until a mesh is ready there. */
export async function compact(t: ExecutionContext, place: FormPlace): Promise<void> {
  const { cluster, helm, inside } = place;
  await leave(cluster, inside);
  await cluster.kubectl('taint', 'nodes', '--all', `${TAINT}:NoSchedule`);
  await installWeft(cluster, helm, ['profile=compact']);
  await until(async () => !(await cluster.kubectl('get', 'nodes', '-o', 'yaml')).includes(TAINT), {
    what: 'the nodes let pods in',
  });
  await works(t, place);
  await uninstallWeft(cluster, helm);
}

/** Checks the form with one Redis that the chart runs. */
export async function sharedRedis(t: ExecutionContext, place: FormPlace): Promise<void> {
  const { cluster, helm, inside } = place;
  const host = `weft-redis.${SYSTEM}.svc`;
  await leave(cluster, inside);
  await makeSecrets(cluster, host);
  await offerVolume(cluster);
  const secrets = [`redis.usersSecret=${SECRETS.users}`, `redis.tlsSecret=${SECRETS.tls}`];
  await installWeft(cluster, helm, ['redis.mode=shared', ...secrets]);
  await restricted(t, cluster, SHARED_FITTING);
  await works(t, place);
  await ownKeysOnly(t, cluster, host);
  await uninstallWeft(cluster, helm);
  await removeSecrets(cluster);
}

/** Checks by the password of each node's agent that it reads its node's keys and is refused those of another. */
async function ownKeysOnly(t: ExecutionContext, cluster: TestCluster, host: string): Promise<void> {
  const nodes = cluster.network.nodes.map(({ name }) => name);
  const client = `redis-cli -e --tls --cacert /etc/weft/redis-roots/ca.crt -h ${host}`;
  const login = `--no-auth-warning --user node-agent.$NODE_NAME --pass "$(cat /etc/weft/redis-user/password)"`;
  for (const agent of await podsOf(cluster, SYSTEM, 'weft-node-agent', 'app.kubernetes.io/name')) {
    const container = { pod: agent.metadata.name, name: 'node-agent' };
    const count = (node: string): Promise<string> => {
      const command = `${client} ${login} hlen 'weft:{${node}}:state:enrolments:data'`;
      return inContainer(cluster, container, 'sh', '-c', `${command} >&2`);
    };
    for (const node of nodes) {
      if (node === agent.spec.nodeName) await t.notThrowsAsync(count(node), node);
      else t.regex(errorText(await t.throwsAsync(count(node))), /NOPERM/, node);
    }
  }
}
