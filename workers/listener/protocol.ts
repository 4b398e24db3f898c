/**
 * What crosses between node-proxy and a listener thread. Types only: a service may import nothing else of
 * this folder. Every message is plain data that survives structured clone, errors as WireError.
 */
import type { KeyObject } from 'node:crypto';
import type { MessagePort } from 'node:worker_threads';
import type { ResponseFlag } from '../../lib/errors/codes.ts';
import type { WireError } from '../../lib/errors/mesh-error.ts';
import type { RevocationLists } from '../../lib/identity/crl.ts';
import type { AccessFields } from '../../lib/log/access-log.ts';
import type { AccessSettings } from '../../lib/log/access-gate.ts';
import type { Series, SeriesMessage } from '../../lib/metrics/series-memory.ts';
import type { LogFormat } from '../../lib/log/logger.ts';
import type { ConnectionExports, ExportDrops, ExportedConnection } from '../../lib/otlp/model.ts';
import type { EffectivePolicy, PolicyProgram } from '../../lib/policy/model.ts';
import type { ProfileCommand, ThreadProfile } from '../../lib/profile/thread-profiler.ts';
import type { Endpoint, LoadBalancing, Service, Workload } from '../../lib/state/model.ts';
import type { AnswerHead, LookupKey } from '../../lib/state/view.ts';

/** Names of the functions that `listener.worker.ts` exports as piscina tasks. */
export type ListenerTask = 'attach' | 'servePod';

/** Given once to each thread, before any pod. `attach` resolves when the ports are wired. */
export interface ThreadAttachment {
  readonly thread: number;
  readonly settings: ListenerSettings;
  readonly control: MessagePort;
  readonly state: MessagePort;
  /** The revocation lists in force; null while there are none. */
  readonly revocations: RevocationLists | null;
  /** Where all threads of the process count what is limited for all of them; null counts this one alone. */
  readonly budget: SharedArrayBuffer | null;
}

/** A pod to serve. `servePod` resolves when the pod is stopped and all its sockets are closed. */
export interface PodTask {
  readonly pod: PodInfo;
  /** A descriptor of the pod's network namespace, owned by node-proxy until the task ends. */
  readonly netnsFd: number;
}

/** A pod as the node agent announced it. */
export interface PodInfo {
  readonly uid: string;
  readonly name: string;
  readonly namespace: string;
  readonly serviceAccount: string;
  /** The proxy itself: tunnels in alone, on unmarked sockets that never carry another's address (docs/spec/dataplane.md §7.7). */
  readonly own?: boolean;
}

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
  /** That of tunnels, both ways. */
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
    /** Of the whole process. */
    readonly connections: number | null;
    readonly handshakes: number;
    /** Held in memory for connections, of the whole process and of one pod. */
    readonly bytes: number;
    readonly bytesPerPod: number;
    /** On one thread. */
    readonly connectionsPerPod: number | null;
    readonly connectionsPerPeer: number | null;
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
  /** What becomes of inbound traffic that did not come by the waypoint its destination names. */
  readonly waypointBypass: 'deny' | 'allow';
  /** Applications behind a PROXY tunnel are reached over loopback. */
  readonly localhostAppTunnel: boolean;
  readonly authzInfoLogging: boolean;
  /** Connections between two pods of this process go without a tunnel where they may. */
  readonly sameNodeFastPath: boolean;
  /** A level or a filter: lib/log/log-filter.ts. */
  readonly logLevel: string;
  readonly logFormat: LogFormat;
  readonly accessLog: AccessSettings;
  /** What is kept of ended connections for export; null = nothing. */
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
  /** Where name servers for everything outside the mesh are listed, in the format of resolv.conf(5). */
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

/** A workload certificate as a thread uses it. Replaced as a whole on rotation. */
export interface CertificateBundle {
  readonly identity: string;
  /** Leaf then intermediates, PEM. */
  readonly chainPem: string;
  readonly key: KeyObject;
  /** The trust bundle node-proxy read itself, PEM; never what came with the chain. */
  readonly rootsPem: string;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  readonly serialNumber: string;
}

/** What a thread can be asked for. */
export type ReportKind = 'connections' | 'recent' | 'metrics' | 'activity' | 'exports';

/** What a pod did on a thread since it was placed there, in about microseconds of the thread's time. */
export interface PodActivity {
  readonly uid: string;
  readonly total: number;
}

/** node-proxy → thread, on the control port. */
export type ControlToThread =
  | { readonly type: 'certificate'; readonly identity: string; readonly bundle: CertificateBundle }
  | {
      readonly type: 'certificate.unavailable';
      readonly identity: string;
      readonly error: WireError;
    }
  /** No pod of the thread has the identity any more. */
  | { readonly type: 'certificate.drop'; readonly identity: string }
  /** Revocation lists instead of those in force; live tunnels are held against them too. */
  | { readonly type: 'revocations'; readonly lists: RevocationLists }
  /**
   * Immediate: listeners and connections end at once. Graceful: listeners close, connections may run on until the
   * deadline, `Infinity` = until they end; a later stop may bring it forward.
   */
  | {
      readonly type: 'pod.stop';
      readonly uid: string;
      readonly mode: 'immediate' | 'graceful';
      readonly deadlineMs: number;
    }
  | {
      readonly type: 'report';
      readonly id: number;
      readonly what: ReportKind;
      /** With access lines. */
      readonly withLines?: boolean;
    }
  | { readonly type: 'profile'; readonly id: number; readonly command: ProfileCommand }
  /** The pod is served by this many threads: its limits are divided among them. */
  | { readonly type: 'pod.divide'; readonly uid: string; readonly threads: number }
  | { readonly type: 'log.level'; readonly level: string }
  | { readonly type: 'access.settings'; readonly settings: AccessSettings }
  /** The series at this slot are read no more. */
  | { readonly type: 'series.released'; readonly at: number }
  /** The process is idle and gives memory back. */
  | { readonly type: 'memory.release' }
  /** A port to another listener thread of this process, which gets the other end. */
  | { readonly type: 'neighbour'; readonly port: MessagePort };

/** Thread → node-proxy, on the control port. */
export type ControlFromThread =
  /** All listeners of the pod are bound and listening. */
  | { readonly type: 'pod.listening'; readonly uid: string }
  | { readonly type: 'pod.failed'; readonly uid: string; readonly error: WireError }
  /** A connection waits for this identity: fetch it before anything else. */
  | { readonly type: 'certificate.needed'; readonly identity: string }
  | {
      readonly type: 'report';
      readonly id: number;
      readonly connections: readonly ConnectionRecord[];
      /** More follow, so that a thread with many is not held up by telling of them. */
      readonly done: boolean;
    }
  /** All values in the memory of the thread's series are up to date. */
  | { readonly type: 'report'; readonly id: number; readonly refreshed: true }
  | { readonly type: 'series'; readonly message: SeriesMessage }
  | {
      readonly type: 'report';
      readonly id: number;
      readonly exports: readonly ExportedConnection[];
      /** Since the last report; zero in all messages of a report but its last. */
      readonly dropped: ExportDrops;
      /** More follow. */
      readonly done: boolean;
    }
  | { readonly type: 'report'; readonly id: number; readonly activity: readonly PodActivity[] }
  | { readonly type: 'profile'; readonly id: number; readonly profile: ThreadProfile }
  | { readonly type: 'profile.failed'; readonly id: number; readonly error: WireError };

/** How a connection is carried; DOUBLEHBONE is a tunnel inside a tunnel, outbound only. */
export type ConnectionProtocol = 'HBONE' | 'DOUBLEHBONE' | 'TCP';

/** How the way out of a pod was chosen. */
export interface RouteRecord {
  readonly kind: 'passthrough' | 'tcp' | 'hbone' | 'double-hbone';
  readonly via: 'direct' | 'waypoint' | 'gateway' | null;
  readonly reason: string;
  /** Connect attempts so far. */
  readonly attempts: number;
}

/** The tunnel of a connection; both of its ends name it alike. */
export interface TunnelRecord {
  /** `client ip:port>server ip:port`. */
  readonly session: string;
  readonly peerIdentity: string;
  readonly openedAtMs: number;
  /** TCP and TLS of its making, milliseconds; null at the end that accepted it for `connectMs`. */
  readonly connectMs: number | null;
  readonly handshakeMs: number;
  /** It stood already when the connection came. */
  readonly reused: boolean;
}

/** What the policies said of an inbound connection. */
export interface PolicyRecord {
  readonly allowed: boolean;
  /** `namespace/name` of the deciding policy, null where none decided. */
  readonly policy: string | null;
  /** Its rule, from 0. */
  readonly rule: number | null;
  readonly reason: string;
}

/** When each step was done, milliseconds after the connection was accepted; null = not yet, or not taken. */
export interface ConnectionSteps {
  readonly understoodMs: number;
  readonly admittedMs: number | null;
  /** The upstream stands: a tunnel's stream is answered, or the TCP connection made. */
  readonly connectedMs: number | null;
  readonly firstByteMs: number | null;
}

/** How a connection ended. */
export interface ConnectionEnd {
  readonly durationMs: number;
  readonly flag: ResponseFlag;
  readonly error: string | null;
  /** The policy and rule that refused it. */
  readonly policy: string | null;
  readonly rule: number | null;
}

/** One connection, live or lately ended, as `weft get connections`, `weft trace` and the config dump show it. */
export interface ConnectionRecord {
  readonly podUid: string;
  readonly direction: 'inbound' | 'outbound';
  readonly protocol: ConnectionProtocol;
  /** `same-node`: between two pods of this process, without the tunnel it stands for. */
  readonly path?: 'same-node' | null;
  /** `ip:port`. */
  readonly source: string;
  readonly destination: string;
  /** Where the bytes go next; for inbound HBONE `podIP:15008`. */
  readonly actualDestination: string;
  readonly destinationService: string | null;
  readonly sourceWorkload: string | null;
  readonly destinationWorkload: string | null;
  readonly sourceIdentity: string | null;
  readonly destinationIdentity: string | null;
  readonly bytesSent: number;
  readonly bytesReceived: number;
  readonly openedAtMs: number;
  /** The `Forwarded: host=` of an inbound request. */
  readonly forwardedHost: string | null;
  /** Shared with the record at the other end of the tunnel. */
  readonly traceId: string | null;
  readonly route: RouteRecord | null;
  readonly tunnel: TunnelRecord | null;
  readonly policy: PolicyRecord | null;
  readonly steps: ConnectionSteps;
  /** Null while it lives. */
  readonly end: ConnectionEnd | null;
  /** The fields of its access line, where the report asked for them; of a live one those of its opening. */
  readonly accessLine: AccessFields | null;
}

/** A counter, gauge or histogram value of a thread; node-proxy sums equal label sets over its threads. */
export interface MetricSample extends Series {
  readonly value: number;
}

/** What a thread needs to know of one of its own pods; pushed on `watch` and on every change. */
export interface LocalPod {
  /** Null while the workload is not known (yet). */
  readonly workload: Workload | null;
  /** The services the workload belongs to. */
  readonly services: readonly Service[];
  readonly policy: EffectivePolicy;
}

/** Thread → state thread. */
export type StateRequest =
  | { readonly type: 'watch'; readonly pod: PodInfo }
  | { readonly type: 'unwatch'; readonly uid: string }
  | { readonly type: 'lookup'; readonly id: number; readonly keys: readonly LookupKey[] }
  /** The last `endpoints` of the service is taken in: the next one may come. */
  | { readonly type: 'endpoints.taken'; readonly service: string }
  /** Endpoints of the service are not held any more. */
  | { readonly type: 'endpoints.release'; readonly service: string };

/** State thread → thread. A program always precedes the first `local` that names its set. */
export type StateResponse =
  | { readonly type: 'program'; readonly program: PolicyProgram }
  | { readonly type: 'program.drop'; readonly setId: string }
  | { readonly type: 'local'; readonly uid: string; readonly pod: LocalPod }
  /** One answer per key asked for, in order; null = cannot tell yet (not synced). All endpoints of its services came before it. */
  | {
      readonly type: 'answer';
      readonly id: number;
      readonly answers: readonly (AnswerHead | null)[];
    }
  /** Endpoints of a service that are new or changed, by uid; null = the workload is none of them. Each is answered by `endpoints.taken`. */
  | {
      readonly type: 'endpoints';
      readonly service: string;
      /** Not null: what was held before is to be forgotten. */
      readonly anew: { readonly balancing: LoadBalancing | null } | null;
      readonly endpoints: readonly (readonly [uid: string, endpoint: Endpoint | null])[];
    }
  /** These cached answers are stale, by lookup id; null = all of them. */
  | { readonly type: 'invalidate'; readonly ids: readonly string[] | null };
