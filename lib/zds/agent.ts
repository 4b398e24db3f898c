/**
 * The agent's side of the ZDS socket: accepts proxies and sends each a snapshot, then adds and removals
 * (docs/spec/cni.md §4, docs/decisions/zds-sessions.md).
 */
import type { Clock } from '../clock/clock.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import { listenSeqpacket } from '../linux/seqpacket.ts';
import type { SeqpacketConnection, SeqpacketServer } from '../linux/seqpacket.ts';
import type { Logger } from '../log/logger.ts';
import { AgentSession } from './agent-session.ts';
import type { AgentSessionEvents, ZdsPod } from './agent-session.ts';
import { ACCEPT_INTERVAL_MS, MAX_CONNECTIONS, MAX_PACKET_BYTES } from './limits.ts';

export type { ZdsPod } from './agent-session.ts';

/** Settings and ports of a {@link ZdsAgent}. */
export interface ZdsAgentOptions {
  readonly path: string;
  /** File mode of the socket. */
  readonly mode: number;
  readonly clock: Clock;
  readonly log: Logger;
  /** Returns the pods for a new proxy. */
  readonly snapshot: () => Iterable<ZdsPod>;
  /** Called when a proxy came or went, because other proxies may now need a pod. */
  readonly onProxies: () => void;
}

/** A connected proxy, as operators see it. */
export interface ZdsConnectionInfo {
  readonly id: number;
  readonly pid: number;
  readonly group: number;
  readonly state: 'greeting' | 'serving' | 'draining';
  readonly synced: boolean;
}

/** Counters for metrics. */
export interface ZdsAgentCounters {
  readonly accepted: number;
  /** Connections that ended because the proxy was another user's, broke the protocol or did not answer in time. */
  readonly broken: number;
  /** Adds that a proxy answered with an error. */
  readonly refused: number;
}

/** Listens for proxies. The owner keeps its pods and descriptors; the agent holds references while a message waits. */
export class ZdsAgent {
  readonly #options: ZdsAgentOptions;
  readonly #sessions = new Map<number, AgentSession>();
  #server: SeqpacketServer | null = null;
  #nextId = 1;
  #counters = { accepted: 0, broken: 0, refused: 0 };

  constructor(options: ZdsAgentOptions) {
    this.#options = options;
  }

  get counters(): ZdsAgentCounters {
    return this.#counters;
  }

  /** The connected proxies, oldest first. */
  get connections(): readonly ZdsConnectionInfo[] {
    return [...this.#sessions.values()].map((session) => ({
      id: session.id,
      pid: session.pid,
      group: session.hello?.group ?? 0,
      state: session.hello?.state ?? 'greeting',
      synced: session.synced,
    }));
  }

  /** Listens. Throws NATIVE_SYSCALL when the path cannot be bound. */
  start(): void {
    const { path, mode, log } = this.#options;
    const server = listenSeqpacket(path, {
      mode,
      maxPacketBytes: MAX_PACKET_BYTES,
      onError: (error) => log.error({ path, reason: error.message }, 'zds.accept-failed'),
    });
    server.onConnection = (connection) => this.#accept(server, connection);
    this.#server = server;
  }

  /** Ends all sessions and stops listening; proxies go on serving. Idempotent. */
  close(): void {
    this.#server?.close();
    this.#server = null;
    for (const session of this.#sessions.values()) session.close('the agent stops');
  }

  /** Returns whether there is a proxy for this pod and every such proxy serves it. */
  served(pod: ZdsPod): boolean {
    return this.#targets().length > 0 && this.unserved(pod).length === 0;
  }

  /** The processes of the proxies that should serve the pod and do not. */
  unserved(pod: ZdsPod): readonly number[] {
    return this.#targets()
      .filter((session) => !session.serves(pod))
      .map(({ pid }) => pid);
  }

  /**
   * Sends the pod to every proxy that should serve it, and resolves when they do, or when `wanted` returns false after a proxy's
   * answer. Rejects with ZDS_NO_PROXY when there is none, else with the error of the first that fails.
   */
  async ensure(pod: ZdsPod, wanted: () => boolean = () => true): Promise<void> {
    // A proxy that joins meanwhile must serve it too; their number is bounded.
    for (let round = 0; round < MAX_CONNECTIONS; round += 1) {
      if (!wanted()) return;
      const targets = this.#targets();
      if (targets.length === 0) throw new MeshError('ZDS_NO_PROXY', 'no node proxy is connected');
      await Promise.all(targets.map((session) => session.ensure(pod)));
      if (this.served(pod)) return;
    }
    throw new MeshError('ZDS_TIMEOUT', `proxies come and go while pod ${pod.uid} is added`);
  }

  /** Forgets all confirmations of the pod, so that the next {@link ensure} sends an Add again. */
  forget(uid: string): void {
    for (const session of this.#sessions.values()) session.forget(uid);
  }

  /**
   * Tells every proxy, draining and older ones included, that the pod is gone, and waits for their answers. Logs failures: a
   * proxy that is gone starts its next session without the pod.
   */
  async del(uid: string): Promise<void> {
    const greeted = [...this.#sessions.values()].filter((session) => session.hello !== null);
    await Promise.all(greeted.map((session) => this.#delFrom(session, uid)));
  }

  async #delFrom(session: AgentSession, uid: string): Promise<void> {
    try {
      await session.del(uid);
    } catch (error) {
      const line = { connection: session.id, pid: session.pid, uid, reason: errorText(error) };
      this.#options.log.warn(line, 'zds.del-failed');
    }
  }

  /** Returns the proxies that get an Add: every serving proxy of the newest group. */
  #targets(): readonly AgentSession[] {
    const serving = [...this.#sessions.values()].filter((session) => session.serving);
    const newest = Math.max(...serving.map((session) => session.hello?.group ?? 0));
    return serving.filter((session) => session.hello?.group === newest);
  }

  #accept(server: SeqpacketServer, connection: SeqpacketConnection): void {
    const { clock, log } = this.#options;
    server.setAccepting(false);
    clock.after(ACCEPT_INTERVAL_MS, () => server.setAccepting(true));
    this.#counters.accepted += 1;
    const { peer } = connection;
    if (peer === null || !isTrusted(peer.uid)) {
      this.#counters.broken += 1;
      log.error({ ...peer }, 'zds.foreign-peer');
      connection.close();
      return;
    }
    if (this.#sessions.size >= MAX_CONNECTIONS) {
      log.error({ limit: MAX_CONNECTIONS }, 'zds.too-many-connections');
      connection.close();
      return;
    }
    const id = this.#nextId;
    this.#nextId += 1;
    const session = new AgentSession(id, connection, clock, this.#events());
    this.#sessions.set(id, session);
    log.info({ connection: id, pid: session.pid }, 'zds.proxy-connected');
  }

  #events(): AgentSessionEvents {
    const { log, onProxies, snapshot } = this.#options;
    return {
      onHello: (session) => {
        log.info({ connection: session.id, ...session.hello }, 'zds.proxy-greeted');
        onProxies();
        return snapshot();
      },
      onRefused: (session, uid, error) => {
        this.#counters.refused += 1;
        const line = { connection: session.id, pid: session.pid, uid, reason: error };
        log.warn(line, 'zds.add-failed');
      },
      onEnd: (session, why, error) => {
        this.#sessions.delete(session.id);
        const line = { connection: session.id, pid: session.pid, reason: why };
        if (error === null) {
          log.info(line, 'zds.proxy-disconnected');
        } else {
          this.#counters.broken += 1;
          log.warn(line, 'zds.proxy-broken');
        }
        onProxies();
      },
    };
  }
}

/** A namespace of a pod is handed to root and to the agent's own user only, whatever the mode of the socket has become. */
function isTrusted(uid: number): boolean {
  return uid === 0 || uid === process.geteuid?.();
}
