import type { ServerTunnel } from '../../lib/hbone/engine.ts';
import type { TunnelPool } from '../../lib/hbone/pool.ts';
import type { ByteAccount } from '../../lib/net/held-bytes.ts';
import type { Admission } from './limits/admission.ts';
import type { Connection, ConnectionFacts } from './telemetry/connection.ts';
import type { PodPolicy } from './policy.ts';
import type { PodInfo } from './protocol.ts';
import type { NameLookups } from './dns/endpoint-names.ts';
import type { ThreadContext } from './thread.ts';

/** What the connections of one pod share. */
export interface PodContext {
  readonly thread: ThreadContext;
  readonly pod: PodInfo;
  /** The pod's network namespace; node-proxy owns the descriptor. Once the pod {@link ended} the number may be another's. */
  readonly netnsFd: number;
  /** Nothing may be opened in its namespace any more. */
  readonly ended: boolean;
  readonly pool: TunnelPool;
  readonly policy: PodPolicy;
  /** Looks up endpoints that are names. */
  readonly names: NameLookups;
  /** Whether connections to the application may carry the client's address. */
  readonly transparent: boolean;
  /** Whether the kernel hands connections that wait at a closing listener to another one of the same port. */
  readonly migrates: boolean;
  /** Counts its connections. */
  readonly admission: Admission;
  /** Accounts for what is held in memory for them. */
  readonly bytes: ByteAccount;
  /** How many threads serve the pod; its limits are divided among them. */
  readonly threads: number;
  /** Starts the record of a connection that is understood. */
  open(facts: ConnectionFacts): Connection;
  /** Ends it: counts, logs, forgets. */
  close(connection: Connection, error: unknown): void;
  /** Logs a connection that failed before it was understood. */
  deny(
    denial: { source: string; destination: string; direction: 'inbound' | 'outbound' },
    error: unknown,
  ): void;
  /** An inbound tunnel lives until its `closed`; a pod that drains drains it at once. */
  addTunnel(tunnel: ServerTunnel): void;
  /** The kernel refused the client's address as source; the connection goes on without it. */
  sourceLost(error: unknown): void;
}
