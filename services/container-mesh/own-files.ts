/** Chooses the secrets that each container gets. Each container has a volume with only its own secrets. Pure. */
import { basename, join } from 'node:path';
import { actorEnv } from '../local-mesh/actor-env.ts';
import { processName } from '../local-mesh/mesh-paths.ts';
import type { MeshPaths } from '../local-mesh/mesh-paths.ts';
import { meshRoles } from '../local-mesh/roles.ts';
import type { Role } from '../local-mesh/roles.ts';
import type { MeshPlan } from '../local-mesh/topology.ts';

/** Directory of a container's own files. */
export const OWN_DIR = '/run/weft/own';
/** The Redis user of the command line, which the supervisor uses too. */
const OPERATOR = { taker: 'supervisor', user: 'cli' } as const;

/** Variables that name a file of the role, and the name of its copy. */
const OWN_FILES: Readonly<Record<string, string>> = {
  REDIS_PASSWORD_FILE: 'redis-password',
  AUTH_TOKEN: 'istio-token',
  WEFT_TOKEN_JWKS_PATH: 'jwks.json',
};

/** Names in docker-compose.yml of a node's actors. */
const NODE_SERVICES: Readonly<Record<string, string>> = {
  'node-agent': 'agent',
  'cert-fetcher': 'fetcher',
  'node-proxy': 'proxy',
};

/** One file to copy. */
export interface GivenFile {
  /** The receiver: `actor` or `actor.node`. */
  readonly taker: string;
  readonly from: string;
  readonly name: string;
}

/** The service of docker-compose.yml that runs a role. */
export function serviceName({ actor, node }: Role): string {
  return node === null ? actor : `${node.name}-${NODE_SERVICES[actor] ?? actor}`;
}

/** All files to copy: for each role only the files that its environment names. */
export function givenFiles(plan: MeshPlan, paths: MeshPaths): readonly GivenFile[] {
  const toRoles = meshRoles(plan).flatMap((role) => {
    const taker = processName(role.actor, role.node?.name ?? null);
    const env = actorEnv(role, plan, paths);
    return Object.entries(OWN_FILES).flatMap(([variable, name]) => {
      const from = env[variable];
      return from === undefined ? [] : [{ taker, from, name }];
    });
  });
  const { taker, user } = OPERATOR;
  return [...toRoles, { taker, from: join(paths.redisSecretsDir, user), name: user }];
}

/** A role's environment with the paths of its own files in {@link OWN_DIR}. */
export function containerEnv(env: Readonly<Record<string, string>>): Record<string, string> {
  const moved = Object.entries(env).map(([variable, value]): [string, string] => {
    const name = OWN_FILES[variable];
    return [variable, name === undefined ? value : join(OWN_DIR, name)];
  });
  return Object.fromEntries(moved);
}

/** The path of a copy, below the folder that holds all receivers' volumes. */
export function givenPath(directory: string, { taker, name }: GivenFile): string {
  return join(directory, taker, basename(name));
}
