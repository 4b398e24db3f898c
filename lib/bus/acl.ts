import { createHash } from 'node:crypto';
import { assert } from '../errors/assert.ts';
import { PROXIES, leaseKey, presenceKey, scopePrefix, wantedKey } from './keys.ts';
import type { Scope, TableName } from './contract.ts';

/** A role with its own Redis user. The operator and the supervisor use `admin`. */
export type RedisRole =
  | 'control-plane'
  | 'xds-ingester'
  | 'policy-evaluator'
  | 'cert-fetcher'
  | 'node-proxy'
  | 'node-agent'
  | 'cli'
  | 'admin';

/** Roles that have one user for each node. */
const NODE_ROLES = ['cert-fetcher', 'node-proxy', 'node-agent'] as const;
const MESH_ROLES = ['control-plane', 'xds-ingester', 'policy-evaluator', 'cli'] as const;

/** A Redis user: its name, its role, and its node where the role has one user for each node. */
export interface RedisUser {
  readonly name: string;
  readonly role: RedisRole;
  readonly node: string | null;
}

/** The users a mesh with these nodes needs, without `admin`. */
export function redisUsers(nodes: readonly string[]): readonly RedisUser[] {
  return [
    ...MESH_ROLES.map((role) => ({ name: role, role, node: null })),
    ...nodes.flatMap((node) => NODE_ROLES.map((role) => ({ name: `${role}.${node}`, role, node }))),
  ];
}

/**
 * Commands of every role: reads, writes, streams and blocking pops, but nothing that administers the server, empties it,
 * lists its keys or loads code that outlives the call. INFO tells the run id. The key rules limit what the commands reach.
 */
const COMMANDS = [
  '-@all',
  '+@read',
  '+@write',
  '+@connection',
  '+@transaction',
  '+@blocking',
  '+@pubsub',
  '+eval',
  '+evalsha',
  '+script|load',
  '+script|exists',
  '-@admin',
  '-@dangerous',
  '-scan',
  '-randomkey',
  '-dbsize',
  '-psubscribe',
  // PUBSUB and CLIENT TRACKING tell of the keys and channels of other nodes: Redis checks no prefix there.
  '-pubsub',
  '-client|tracking',
  // Functions stay in the server, outside all key rules; no role uses them.
  '-function',
  '-fcall',
  '-fcall_ro',
  '-spublish',
  '-ssubscribe',
  '-move',
  '-copy',
  '+info',
  // A client asks for the slots of a cluster and whether it serves. No role has another CLUSTER command.
  '+cluster|slots',
  '+cluster|info',
];

/** The rules of one user, without name and password. `prefix` is WEFT_REDIS_PREFIX. */
export function aclRules(user: Omit<RedisUser, 'name'>, prefix: string): readonly string[] {
  if (user.role === 'admin') return ['~*', '&*', '+@all'];
  return [...keyRules(user, prefix), ...COMMANDS];
}

function keyRules(user: Omit<RedisUser, 'name'>, prefix: string): readonly string[] {
  const mesh = scopePrefix(prefix, 'mesh');
  const readMesh = `%R~${mesh}:state:*`;
  const table = (name: TableName, scope: Scope): string =>
    `~${scopePrefix(prefix, scope)}:state:${name}:*`;
  const lease = (name: string, scope: Scope): string[] => {
    const key = leaseKey(prefix, name, scope);
    return [`~${key}`, `~${key}:fence`];
  };
  switch (user.role) {
    case 'admin':
      return ['~*'];
    case 'control-plane':
      return [`%R~${prefix}:{*}:state:enrolments:*`];
    case 'xds-ingester':
      return [
        table('addresses', 'mesh'),
        table('authorizations', 'mesh'),
        table('rejections', 'mesh'),
        table('removals', 'mesh'),
        table('names', 'mesh'),
        `%R~${wantedKey(prefix)}`,
        ...lease('ingest', 'mesh'),
        `~${mesh}:accept:*`,
        ...board(mesh, 'accepted', '~'),
      ];
    case 'policy-evaluator':
      return [
        readMesh,
        table('programs', 'mesh'),
        `~${mesh}:compile:*`,
        `~${mesh}:explain:*`,
        ...board(mesh, 'explain', '~'),
      ];
    case 'cli':
      return [
        `%R~${prefix}:*`,
        `~${mesh}:explain:*`,
        ...board(mesh, 'explain', '%R~'),
        `~${mesh}:accept:*`,
        ...board(mesh, 'accepted', '%R~'),
      ];
    case 'cert-fetcher': {
      const node = nodeScope(user, prefix);
      return [readMesh, `~${node}:sign:*`, ...board(node, 'signed', '~')];
    }
    case 'node-proxy': {
      const node = nodeScope(user, prefix);
      const present = presenceKey(prefix, PROXIES, { node: nodeName(user) });
      return [
        readMesh,
        `~${node}:sign:*`,
        `%R~${node}:result:*`,
        `&${node}:result:*`,
        `~${present}`,
        // Write only: a node must not learn what the others want.
        `%W~${wantedKey(prefix)}`,
      ];
    }
    case 'node-agent': {
      const scope = { node: nodeName(user) };
      return [table('enrolments', scope), ...lease('agent', scope)];
    }
  }
}

function board(scope: string, name: string, access: '~' | '%R~'): readonly string[] {
  return [`${access}${scope}:result:${name}:*`, `&${scope}:result:${name}:*`];
}

function nodeName(user: Omit<RedisUser, 'name'>): string {
  assert(user.node !== null, `${user.role} has a user per node`);
  // The name becomes part of a key pattern: a wildcard in it would reach other nodes.
  assert(
    /^[A-Za-z0-9._-]+$/.test(user.node),
    `node name ${user.node} is not usable in a key pattern`,
  );
  return user.node;
}

function nodeScope(user: Omit<RedisUser, 'name'>, prefix: string): string {
  return scopePrefix(prefix, { node: nodeName(user) });
}

/**
 * The `default` user is off and has no password, so nobody can be it. It keeps its rights: Redis reads its append-only file back as
 * this user, and would drop every transaction and every script that wrote more than one key.
 */
const DEFAULT_USER = 'user default off resetpass ~* &* +@all';

/**
 * The text of Redis's ACL file: one line for each user, passwords as SHA-256, the `default` user off.
 * Throws InvariantError when a user has no password.
 */
export function renderUsersAcl(
  users: readonly RedisUser[],
  passwords: ReadonlyMap<string, string>,
  prefix: string,
): string {
  const lines = users.map((user) => {
    const password = passwords.get(user.name);
    assert(password !== undefined && password !== '', `user ${user.name} has no password`);
    const hash = createHash('sha256').update(password).digest('hex');
    return `user ${user.name} on #${hash} resetchannels ${aclRules(user, prefix).join(' ')}`;
  });
  return [DEFAULT_USER, ...lines, ''].join('\n');
}
