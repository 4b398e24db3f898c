/** Settings that a listener thread gets at its start. Plain data. */
import type { AccessSettings } from '../../../lib/log/access-gate.ts';
import type { LogFormat } from '../../../lib/log/logger.ts';
import type { ConnectionExports } from '../../../lib/otlp/model.ts';

/** Settings of the data path; names follow docs/spec/observability.md §6. Times in milliseconds, sizes in bytes. */
export interface ListenerSettings {
  readonly node: string;
  readonly network: string;
  readonly clusterDomain: string;
  readonly ipv6: boolean;
  /** SO_MARK of every socket; 0 sets none. */
  readonly packetMark: number;
  /** TCP sockets to elsewhere alone bear the mark (docs/spec/dataplane.md §9, dedicated mode). */
  readonly marksUpstreamOnly?: boolean;
  readonly portReuse: boolean;
  /** `auto` = transparent where the kernel lets us. */
  readonly originalSource: 'auto' | 'on' | 'off';
  readonly keepalive: {
    readonly enabled: boolean;
    readonly timeMs: number;
    readonly intervalMs: number;
    readonly retries: number;
  };
  /** TCP_USER_TIMEOUT of sockets to applications and plain destinations; 0 sets none. */
  readonly userTimeoutMs: number;
  /** TCP_USER_TIMEOUT of tunnels, both ways. */
  readonly tunnelUserTimeoutMs: number;
  readonly http2: {
    readonly streamWindow: number;
    readonly connectionWindow: number;
    readonly frameSize: number;
    readonly maxStreamsPerConnection: number;
    readonly idleReleaseMs: number;
    readonly pingIntervalMs: number;
    readonly pingTimeoutMs: number;
  };
  readonly connectTimeoutMs: number;
  readonly handshakeTimeoutMs: number;
  /** Null = by the descriptors of the process. */
  readonly limits: {
    /** Limits of the whole process. */
    readonly connections: number | null;
    readonly handshakes: number;
    /** Held in memory for connections, of the whole process and of one pod. */
    readonly bytes: number;
    readonly bytesPerPod: number;
    /** On one thread. */
    readonly connectionsPerPod: number | null;
  };
  readonly connectRetry: { readonly attempts: number; readonly totalMs: number };
  readonly responseBaggage: boolean;
  readonly tls12: boolean;
  readonly compliance: 'pqc' | null;
  /** Whether peers are held against revocation lists (`CRL_PATH`). */
  readonly revocation: boolean;
  /** How long streams of a peer that leads to no trusted root any more may run on. */
  readonly distrustGraceMs: number;
  readonly policyUnknownReference: 'deny' | 'ignore';
  /** Decides about inbound traffic that did not come by the waypoint its destination names. */
  readonly waypointBypass: 'deny' | 'allow';
  /** How long a connection waits for a lookup on demand, milliseconds; null = the whole mesh is followed. */
  readonly onDemandWaitMs?: number | null;
  /** Applications behind a PROXY tunnel are reached over loopback. */
  readonly localhostAppTunnel: boolean;
  readonly authzInfoLogging: boolean;
  /** Connections between two pods of this process go without a tunnel where they may. */
  readonly sameNodeFastPath: boolean;
  /** A level or a filter: lib/log/log-filter.ts. */
  readonly logLevel: string;
  readonly logFormat: LogFormat;
  readonly accessLog: AccessSettings;
  /** Which facts of ended connections are kept for export; null = none. */
  readonly exports?: ConnectionExports | null;
  /** 15001, 15006, 15008, 15080 unless a test says otherwise. */
  readonly ports: {
    readonly outbound: number;
    readonly inboundPlaintext: number;
    readonly inboundHbone: number;
    /** Null = no SOCKS5. */
    readonly socks5: number | null;
  };
  /** Pods have the DNS proxy and no listener for traffic (`ENABLE_PROXY=false`). */
  readonly dnsOnly?: boolean;
  /** The file that lists name servers for names outside the mesh, in the format of resolv.conf(5). */
  readonly resolvConf: string;
  /** The DNS proxy; null = pods resolve names without us. */
  readonly dns: DnsSettings | null;
}

/** Settings of the DNS proxy (docs/spec/dns.md). */
export interface DnsSettings {
  /** Null = loopback of both families; the port in any case. */
  readonly address: string | null;
  readonly port: number;
  /** Wins where several namespaces know a name; null for none. */
  readonly preferredNamespace: string | null;
  /** Null = the search list that Kubernetes gives the pods of the mesh; else that of `resolvConf`. */
  readonly searchDomains: 'resolv.conf' | null;
}
