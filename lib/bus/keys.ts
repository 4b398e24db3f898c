import type { Scope, TableName } from './contract.ts';

/** The Redis keys of a replicated table; all share one hash tag. */
export interface TableKeys {
  /** Hash: epoch, version, complete. */
  readonly meta: string;
  /** Hash: row key → 8-byte big-endian version and the value. */
  readonly data: string;
  /** Hash: row key → the writer's tag. */
  readonly tags: string;
  /** Stream of changes. */
  readonly log: string;
  /** Rows of the next epoch while it is being written. */
  readonly stage: string;
  readonly stageTags: string;
}

/** The prefix of a scope's keys: `<prefix>:{mesh}` or `<prefix>:{<node>}`. */
export function scopePrefix(prefix: string, scope: Scope): string {
  return `${prefix}:{${scope === 'mesh' ? 'mesh' : scope.node}}`;
}

/** The keys of a table. */
export function tableKeys(prefix: string, table: TableName, scope: Scope): TableKeys {
  const base = `${scopePrefix(prefix, scope)}:state:${table}`;
  return {
    meta: `${base}:meta`,
    data: `${base}:data`,
    tags: `${base}:tags`,
    log: `${base}:log`,
    stage: `${base}:stage`,
    stageTags: `${base}:stage-tags`,
  };
}

/** The key of a lease; its fencing counter is this and `:fence`. */
export function leaseKey(prefix: string, name: string, scope: Scope): string {
  return `${scopePrefix(prefix, scope)}:lease:${name}`;
}

/** Name of the presence list of a node's proxies, of all generations. */
export const PROXIES = 'proxies';

/** The key of the stream of names that node-proxies want on demand, mesh scope. */
export function wantedKey(prefix: string): string {
  return `${scopePrefix(prefix, 'mesh')}:wanted`;
}

/** The key of a list of members that are there. */
export function presenceKey(prefix: string, name: string, scope: Scope): string {
  return `${scopePrefix(prefix, scope)}:presence:${name}`;
}

/** The key, and the channel of hints, of a job's result. */
export function resultKey(prefix: string, board: string, scope: Scope, id: string): string {
  return `${scopePrefix(prefix, scope)}:result:${board}:${id}`;
}
