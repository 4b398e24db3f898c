/** Shared context of the parts of a listener thread. Types only: every part imports this file, and it imports none that imports it. */
import type { Clock } from '../../lib/clock/clock.ts';
import type { HboneEngine, ServerTunnel, TunnelSettings } from '../../lib/hbone/engine.ts';
import type { PeerTrust } from '../../lib/hbone/peer-trust.ts';
import type { TunnelPool } from '../../lib/hbone/pool.ts';
import type { TcpOptions } from '../../lib/linux/sockets.ts';
import type { AccessGate } from '../../lib/log/access-gate.ts';
import type { AccessLog } from '../../lib/log/access-log.ts';
import type { Logger } from '../../lib/log/logger.ts';
import type { OnDemandDns } from '../../lib/metrics/on-demand-dns.ts';
import type { TrafficMetrics } from '../../lib/metrics/traffic.ts';
import type { ByteAccount, HeldBytes } from '../../lib/net/held-bytes.ts';
import type { NodeBudget } from '../../lib/net/node-budget.ts';
import type { NameLookups, SharedNames } from './dns/endpoint-names.ts';
import type { ThreadDns } from './dns/thread-dns.ts';
import type { Admission, AdmissionLimits } from './limits/admission.ts';
import type { DescriptorGuard } from './limits/descriptor-guard.ts';
import type { FairTurns } from './limits/fair-turns.ts';
import type { PodPolicy } from './policy.ts';
import type { PodInfo } from './protocol/control.ts';
import type { ListenerSettings } from './protocol/settings.ts';
import type { Asker } from './same-node/client.ts';
import type { Proofs } from './same-node/proof.ts';
import type { StateClient } from './state-client.ts';
import type { Connection, ConnectionFacts } from './telemetry/connection.ts';
import type { ExportBuffer } from './telemetry/export-buffer.ts';
import type { RecentConnections } from './telemetry/recent-connections.ts';
import type { ThreadMetrics } from './telemetry/thread-metrics.ts';
import type { CertificateStore } from './tunnel/certificates.ts';
import type { PeerWatch } from './tunnel/peer-watch.ts';

/** The pods that threads of this process serve, and the way to each (same-node/neighbours.ts). */
export interface PodRoutes {
  /** Returns the way to a thread that serves the pod; null when none does. */
  find(pod: string): Asker | null;
  /** Announces that the pod listens on this thread. */
  serve(pod: PodContext): void;
  /** Withdraws the pod; it keeps its connections. Has no effect for a pod that is not served. */
  withdraw(pod: PodContext): void;
}

/** Context that all pods of a thread share. */
export interface ThreadContext {
  readonly settings: ListenerSettings;
  readonly tunnelSettings: TunnelSettings;
  /** Options of every TCP socket but the accepted tunnels. */
  readonly tcpOptions: TcpOptions;
  /** Ports of the proxy's own listeners. */
  readonly ownPorts: ReadonlySet<number>;
  /** Connections that one pod may have here. */
  readonly admission: AdmissionLimits;
  /** Limits of the whole process. */
  readonly budget: NodeBudget;
  /** Keeps the last descriptors free. */
  readonly descriptors: DescriptorGuard;
  /** Bytes held in memory for connections. */
  readonly held: HeldBytes;
  /** Handshakes of all pods, inbound and outbound, take turns. */
  readonly handshakeTurns: FairTurns;
  readonly clock: Clock;
  readonly log: Logger;
  readonly access: AccessLog;
  /** Ended connections for export; null where nothing is exported. */
  readonly exports: ExportBuffer | null;
  /** Which access lines are written. */
  readonly gate: AccessGate;
  readonly traffic: TrafficMetrics;
  readonly onDemandDns: OnDemandDns;
  readonly metrics: ThreadMetrics;
  /** Connections that ended lately. */
  readonly recent: RecentConnections;
  readonly state: StateClient;
  readonly certificates: CertificateStore;
  /** Holds its peers against revocation lists and trust roots, also later. */
  readonly engine: HboneEngine;
  readonly peers: PeerWatch;
  readonly trust: PeerTrust;
  /** Null when the DNS proxy is off. */
  readonly dns: ThreadDns | null;
  /** Shared parts of the look-ups of endpoints that are names. */
  readonly names: SharedNames;
  /** Finds the thread that serves a pod. */
  readonly neighbours: PodRoutes;
  readonly proofs: Proofs;
}

/** Context that the connections of one pod share. */
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
