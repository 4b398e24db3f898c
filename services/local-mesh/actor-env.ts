import type { Environment } from '../../lib/config/env.ts';
/**
 * The environment of each actor of the local mesh. Variables have upstream's names where upstream has them, so an
 * unmodified ztunnel, istiod or istio-cni can run in the place of an actor. Pure.
 */
import { join } from 'node:path';
import { adminSocket, podRecordsDir, tokenFile, zdsSocket } from './mesh-paths.ts';
import type { MeshPaths } from './mesh-paths.ts';
import { roleName } from './roles.ts';
import type { Role } from './roles.ts';
import type { MeshPlan, NodePlan } from './topology.ts';
import { SERVICE_RANGE } from './topology.ts';

/** xDS and CA both listen here, each on its own address. */
const ISTIOD_PORT = 15_012;
/** Namespace of the mesh's own accounts. */
export const SYSTEM_NAMESPACE = 'istio-system';
/** Account of a node's proxy, which may ask for the identities of its node. */
export const NODE_ACCOUNT = 'ztunnel';
/** Account of the control plane. */
export const CONTROL_ACCOUNT = 'istiod';
/** Account of the ingester, which serves no single node. */
export const INGESTER_ACCOUNT = 'weft-xds-ingester';
/** Istio's control plane and CNI agent serve metrics here. */
const METRICS_PORT = 15_014;
/** Metrics addresses of the actors that share a network with one of those two. */
const FETCHER_METRICS_PORT = 15_016;
const INGESTER_METRICS_PORT = 15_016;
const EVALUATOR_METRICS_PORT = 15_017;
const CLUSTER_ID = 'Kubernetes';
const TRUST_DOMAIN = 'cluster.local';

/** Variables by name. */
export type ActorEnv = Readonly<Record<string, string>>;

/** Returns the environment that makes `role` part of the mesh. */
export function actorEnv(role: Role, plan: MeshPlan, paths: MeshPaths): ActorEnv {
  return { ...commonEnv(role, paths), ...ownEnv(role, plan, paths) };
}

/**
 * Defaults of the local mesh that differ from an actor's own; the caller's setting has precedence. A mesh on demand has no DNS
 * proxy, which needs all names; pods find services by their hosts file.
 */
export function actorDefaults({ actor }: Role, caller: Environment = {}): ActorEnv {
  const onDemand = isSet(caller, 'XDS_ON_DEMAND');
  switch (actor) {
    case 'node-agent':
      return onDemand ? {} : { AMBIENT_DNS_CAPTURE: 'true' };
    case 'node-proxy':
      return {
        ...(onDemand ? { ISTIO_META_DNS_CAPTURE: 'false' } : {}),
        // A local mesh has no NetworkPolicy that could be bypassed.
        WEFT_SAME_NODE_FAST_PATH: 'true',
        // A pod cannot reach the machine's name servers, so queries to them time out. With an empty list they fail at once.
        WEFT_DNS_RESOLV_CONF: '/dev/null',
      };
    default:
      return {};
  }
}

/** Returns why settings of the caller that several actors share exclude each other; empty when they do not. */
export function contradictions(caller: Environment): readonly string[] {
  return isSet(caller, 'XDS_ON_DEMAND') && isSet(caller, 'AMBIENT_DNS_CAPTURE')
    ? [
        'AMBIENT_DNS_CAPTURE=true cannot be used with XDS_ON_DEMAND=true: a mesh on demand has no DNS proxy, which needs all names',
      ]
    : [];
}

function isSet(environment: Environment, name: string): boolean {
  return environment[name]?.toLowerCase() === 'true';
}

function commonEnv(role: Role, paths: MeshPaths): ActorEnv {
  const node = role.node?.name ?? null;
  return {
    ...(node === null ? {} : { NODE_NAME: node }),
    WEFT_ADMIN_ADDRESS: `unix:${adminSocket(paths, role.actor, node)}`,
  };
}

function ownEnv(role: Role, plan: MeshPlan, paths: MeshPaths): ActorEnv {
  switch (role.actor) {
    case 'ca':
      return caEnv(plan, paths);
    case 'control-plane':
      return controlPlaneEnv(plan, paths);
    case 'xds-ingester':
      return {
        ...redisEnv(paths, 'xds-ingester'),
        ...xdsEnv(plan, paths, 'xds-ingester'),
        INSTANCE_IP: plan.control.controlPlane.ipv4,
        POD_NAME: 'xds-ingester',
        WEFT_METRICS_ADDRESS: `:${INGESTER_METRICS_PORT}`,
        POD_NAMESPACE: SYSTEM_NAMESPACE,
      };
    case 'policy-evaluator':
      return {
        ...redisEnv(paths, 'policy-evaluator'),
        WEFT_XDS_CONTROL_PLANE: 'weft',
        WEFT_METRICS_ADDRESS: `:${EVALUATOR_METRICS_PORT}`,
      };
    case 'cert-fetcher':
      return {
        ...redisEnv(paths, userOf(role)),
        ...caClientEnv(plan, paths, tokenBearer(role)),
        WEFT_METRICS_ADDRESS: `:${FETCHER_METRICS_PORT}`,
      };
    case 'node-agent':
      return role.node === null ? {} : nodeAgentEnv(role.node, paths, userOf(role));
    case 'node-proxy':
      return role.node === null ? {} : nodeProxyEnv(role.node, plan, paths, userOf(role));
  }
}

function caEnv(plan: MeshPlan, paths: MeshPaths): ActorEnv {
  const { ca, controlPlane } = plan.control;
  const granted = [
    'istiod.istio-system.svc',
    'istiod.istio-system.svc.cluster.local',
    controlPlane.ipv4,
    controlPlane.ipv6,
  ];
  return {
    WEFT_LISTEN: `${ca.ipv4}:${ISTIOD_PORT}`,
    WEFT_METRICS_ADDRESS: `${ca.ipv4}:${METRICS_PORT}`,
    WEFT_STATE_DIR: paths.caDir,
    WEFT_CA_ROOT_BUNDLE_FILE: paths.rootsFile,
    WEFT_PODS_SOCKET: paths.podsSocket,
    ISTIOD_CUSTOM_HOST: [ca.ipv4, ca.ipv6, 'istiod.istio-system.svc'].join(','),
    WEFT_CA_SERVING_NAMES: `${SYSTEM_NAMESPACE}/${CONTROL_ACCOUNT}=${granted.join(',')}`,
    WEFT_TOKEN_JWKS_PATH: jwksFile(paths),
    TRUST_DOMAIN,
  };
}

function controlPlaneEnv(plan: MeshPlan, paths: MeshPaths): ActorEnv {
  const { controlPlane } = plan.control;
  return {
    ...redisEnv(paths, 'control-plane'),
    ...caClientEnv(plan, paths, 'control-plane'),
    WEFT_LISTEN: `${controlPlane.ipv4}:${ISTIOD_PORT}`,
    WEFT_METRICS_ADDRESS: `${controlPlane.ipv4}:${METRICS_PORT}`,
    WEFT_STATE_DIR: paths.controlDir,
    WEFT_CONTROL_PLANE_API_SOCKET: paths.controlSocket,
    WEFT_PODS_SOCKET: paths.podsSocket,
    WEFT_TOKEN_JWKS_PATH: jwksFile(paths),
    WEFT_CONTROL_PLANE_SERVICE_CIDRS: `${SERVICE_RANGE.ipv4},${SERVICE_RANGE.ipv6}`,
    TRUST_DOMAIN,
  };
}

function nodeAgentEnv(node: NodePlan, paths: MeshPaths, user: string): ActorEnv {
  return {
    ...redisEnv(paths, user),
    INPOD_UDS: zdsSocket(paths, node.name),
    WEFT_NODE_AGENT_PODS_DIR: podRecordsDir(paths, node.name),
    WEFT_METRICS_ADDRESS: `:${METRICS_PORT}`,
  };
}

function nodeProxyEnv(node: NodePlan, plan: MeshPlan, paths: MeshPaths, user: string): ActorEnv {
  return {
    ...redisEnv(paths, user),
    ...xdsEnv(plan, paths, node.name),
    ...caClientEnv(plan, paths, node.name),
    PROXY_MODE: 'shared',
    INPOD_UDS: zdsSocket(paths, node.name),
    INSTANCE_IP: node.link.ipv4,
    POD_NAME: `ztunnel-${node.name}`,
    POD_NAMESPACE: SYSTEM_NAMESPACE,
    SERVICE_ACCOUNT: NODE_ACCOUNT,
    TRUST_DOMAIN,
    WEFT_XDS_CONTROL_PLANE: 'weft',
    // The supervisor starts a successor when it sees a proxy end; a cold start on a busy machine takes seconds.
    WEFT_NODE_PROXY_HANDOVER: '15s',
  };
}

function redisEnv(paths: MeshPaths, user: string): ActorEnv {
  return {
    REDIS_URL: `unix://${paths.redisSocket}`,
    REDIS_USERNAME: user,
    REDIS_PASSWORD_FILE: join(paths.redisSecretsDir, user),
  };
}

function xdsEnv(plan: MeshPlan, paths: MeshPaths, bearer: string): ActorEnv {
  return {
    XDS_ADDRESS: `https://${plan.control.controlPlane.ipv4}:${ISTIOD_PORT}`,
    XDS_ROOT_CA: paths.rootsFile,
    AUTH_TOKEN: tokenFile(paths, bearer),
    CLUSTER_ID,
  };
}

function caClientEnv(plan: MeshPlan, paths: MeshPaths, bearer: string): ActorEnv {
  return {
    CA_ADDRESS: `https://${plan.control.ca.ipv4}:${ISTIOD_PORT}`,
    CA_ROOT_CA: paths.rootsFile,
    AUTH_TOKEN: tokenFile(paths, bearer),
    CLUSTER_ID,
  };
}

/** The Redis user of a role; a role of the nodes has a user for each node. */
function userOf(role: Role): string {
  return role.node === null ? role.actor : `${role.actor}.${role.node.name}`;
}

function tokenBearer(role: Role): string {
  return role.node?.name ?? role.actor;
}

/** The public keys that verify the mesh's tokens. */
export function jwksFile(paths: MeshPaths): string {
  return join(paths.tokensDir, 'jwks.json');
}

/** Shell commands that set the environment, values quoted. */
export function renderShell(role: Role, plan: MeshPlan, env: ActorEnv): string {
  const netns = role.node?.netns ?? plan.control.netns;
  const lines = Object.entries(env)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value]) => `export ${name}='${value.replaceAll("'", String.raw`'\''`)}'`);
  return `# ${roleName(role)}: run it inside nsenter --net=/run/netns/${netns}\n${lines.join('\n')}\n`;
}
