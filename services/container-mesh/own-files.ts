/** Pure: what of the mesh's secrets a container is given. Each has a volume that holds its own and nothing else. */
import { basename, join } from 'node:path';
import { actorEnv } from '../local-mesh/actor-env.ts';
import { processName } from '../local-mesh/mesh-paths.ts';
import type { MeshPaths } from '../local-mesh/mesh-paths.ts';
import { meshRoles } from '../local-mesh/roles.ts';
import type { Role } from '../local-mesh/roles.ts';
import type { MeshPlan } from '../local-mesh/topology.ts';

/** Where a container finds its own files. */
export const OWN_DIR = '/run/weft/own';
/** The command line's user of Redis, which answers for what is not an actor. */
const OPERATOR = { taker: 'supervisor', user: 'cli' } as const;

/** Variables that name a file of the role's own, and how the file is called there. */
const OWN_FILES: Readonly<Record<string, string>> = {
  REDIS_PASSWORD_FILE: 'redis-password',
  AUTH_TOKEN: 'istio-token',
  WEFT_TOKEN_JWKS_PATH: 'jwks.json',
};

/** How docker-compose.yml names the parts of a node. */
const NODE_SERVICES: Readonly<Record<string, string>> = {
  'node-agent': 'agent',
  'cert-fetcher': 'fetcher',
  'node-proxy': 'proxy',
};

/** One copy to make. */
export interface GivenFile {
  /** Who is given it: `actor` or `actor.node`. */
  readonly taker: string;
  readonly from: string;
  readonly name: string;
}

/** The service of docker-compose.yml that plays a role. */
export function serviceName({ actor, node }: Role): string {
  return node === null ? actor : `${node.name}-${NODE_SERVICES[actor] ?? actor}`;
}

/** Everything that is given: to each role the files its environment names, and no other. */
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

/** A role's environment where its own files lie in {@link OWN_DIR}. */
export function containerEnv(env: Readonly<Record<string, string>>): Record<string, string> {
  const moved = Object.entries(env).map(([variable, value]): [string, string] => {
    const name = OWN_FILES[variable];
    return [variable, name === undefined ? value : join(OWN_DIR, name)];
  });
  return Object.fromEntries(moved);
}

/** Where a file is given to its taker, below the folder that holds all takers' volumes. */
export function givenPath(directory: string, { taker, name }: GivenFile): string {
  return join(directory, taker, basename(name));
}
