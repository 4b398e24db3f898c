import type { Environment } from './env.ts';

/** Variables of the `weft` command and its launcher; actors do not read them. */
export const COMMAND_VARIABLES: readonly string[] = ['WEFT_RUN_DIR', 'WEFT_MESH', 'WEFT_TRACE'];

/**
 * Settings of the previous release that no longer exist. For one release they are accepted, ignored and named in one warning, so
 * that an upgrade does not stop at an old configuration.
 */
export const RETIRED_VARIABLES: ReadonlySet<string> = new Set([
  'WEFT_ACCESS_LOG_LINES_PER_SECOND',
  'WEFT_CA_NAMESPACE_SELECTOR',
  'WEFT_CA_ROTATION_SETTLE',
  'WEFT_CA_SIGNING_THREADS',
  'WEFT_CONNECT_RETRY_ATTEMPTS',
  'WEFT_CONNECT_RETRY_TOTAL',
  'WEFT_CONNECT_TIMEOUT',
  'WEFT_CONTROL_PLANE_DOMAIN',
  'WEFT_CONTROL_PLANE_ENTRY_CIDRS',
  'WEFT_CONTROL_PLANE_LEASE_DURATION',
  'WEFT_CONTROL_PLANE_NODE_DAEMON_SETS',
  'WEFT_CONTROL_PLANE_WEBHOOK_CERT_DIR',
  'WEFT_DISTRUST_GRACE',
  'WEFT_HANDSHAKE_TIMEOUT',
  'WEFT_HBONE_ENGINE',
  'WEFT_LOG_LEVEL',
  'WEFT_MAX_BYTES_PER_POD',
  'WEFT_MAX_CONNECTIONS_PER_POD',
  'WEFT_MAX_CONNECTIONS_PER_PEER',
  'WEFT_MAX_HANDSHAKES',
  'WEFT_NODE_AGENT_ADD_TO',
  'WEFT_NODE_AGENT_DAEMON_SETS',
  'WEFT_NODE_AGENT_DRIFT_INTERVAL',
  'WEFT_NODE_AGENT_RESCAN',
  'WEFT_NODE_AGENT_SYSCTL_DIR',
  'WEFT_NODE_PROXY_COOL_AFTER',
  'WEFT_NODE_PROXY_HOT_AFTER',
  'WEFT_NODE_PROXY_HOT_PERCENT',
  'WEFT_NODE_PROXY_ON_DEMAND_WAIT',
  'WEFT_NODE_PROXY_READINESS_PORT',
  'WEFT_NODE_PROXY_STATE_THREAD',
  'WEFT_PING_INTERVAL',
  'WEFT_PING_TIMEOUT',
  'WEFT_REDIS_RESYNC_SPREAD',
  'WEFT_RELEASE_MEMORY',
  'WEFT_TUNNEL_USER_TIMEOUT',
]);

/** Settings of the previous release under their present names. A process refuses the old name, because it would start with another meaning without it. */
const RENAMED: ReadonlyMap<string, string> = new Map([
  ...['SOURCE', 'LISTEN', 'STATE_DIR', 'PODS_SOCKET'].flatMap((name) =>
    ['CA', 'CONTROL_PLANE'].map((actor) => [`WEFT_${actor}_${name}`, `WEFT_${name}`] as const),
  ),
  ['WEFT_CA_PLUGGED_DIR', 'ROOT_CA_DIR'],
  ['WEFT_CA_SERVING_HOSTS', 'ISTIOD_CUSTOM_HOST'],
  ['WEFT_CONTROL_PLANE_ROOT_NAMESPACE', 'POD_NAMESPACE'],
  ['WEFT_TOKEN_ISSUER', 'TOKEN_ISSUER'],
]);

/** Returns the retired settings that the environment still sets, sorted. */
export function retiredVariables(environment: Environment): string[] {
  return Object.keys(environment)
    .filter((name) => RETIRED_VARIABLES.has(name))
    .sort();
}

/**
 * Returns one problem text for each unknown `WEFT_*` variable, with the closest known name: a misspelt setting must not be
 * ignored silently. Other prefixes belong to other programs.
 */
export function unknownVariables(environment: Environment, known: Iterable<string>): string[] {
  const names = new Set([...known, ...COMMAND_VARIABLES]);
  return Object.keys(environment)
    .filter((name) => name.startsWith('WEFT_') && !names.has(name) && !RETIRED_VARIABLES.has(name))
    .sort()
    .map((name) => {
      const renamed = RENAMED.get(name);
      if (renamed !== undefined) return `${name} is now ${renamed}`;
      const nearest = nearestName(name, names);
      return `${name} is unknown${nearest === null ? '' : `, did you mean ${nearest}?`}`;
    });
}

function nearestName(name: string, known: Iterable<string>): string | null {
  let best: string | null = null;
  let bestDistance = Math.ceil(name.length / 3);
  for (const candidate of known) {
    const distance = editDistance(name, candidate);
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** Returns the Levenshtein distance. */
function editDistance(left: string, right: string): number {
  let previous = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let row = 1; row <= left.length; row += 1) {
    const current = [row];
    for (let column = 1; column <= right.length; column += 1) {
      const substitution = left[row - 1] === right[column - 1] ? 0 : 1;
      current.push(
        Math.min(
          (previous[column] ?? 0) + 1,
          (current[column - 1] ?? 0) + 1,
          (previous[column - 1] ?? 0) + substitution,
        ),
      );
    }
    previous = current;
  }
  return previous[right.length] ?? 0;
}
