import type { ProcessStatus } from './managed-process.ts';

/** A role that the user's own program plays. */
export interface ExternalRole {
  readonly actor: string;
  readonly node: string | null;
}

/** How an external role shows in `weft status`. */
export function externalStatus(role: ExternalRole): ProcessStatus {
  return {
    name: role.actor,
    node: role.node,
    pid: null,
    state: 'external',
    pending: [],
    restarts: 0,
    uptimeSeconds: 0,
    generation: 0,
    retiring: false,
  };
}
