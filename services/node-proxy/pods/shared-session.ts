/** Shares one session with the node agent between the proxies of a node (docs/decisions/zds-sessions.md). */
import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Timer } from '../../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { lockFile } from '../../../lib/linux/file-lock.ts';
import type { FileLock } from '../../../lib/linux/file-lock.ts';
import type { ZdsHello, ZdsWorkloadInfo } from '../../../lib/zds/frames.ts';
import { ZdsProxy } from '../../../lib/zds/proxy.ts';
import type { ZdsProxyHandler } from '../../../lib/zds/proxy.ts';
import { HOLDER_CLAIM_MS } from '../limits.ts';
import { HandedPods } from './handed-pods.ts';
import type { HandedPodsOptions } from './handed-pods.ts';

/** The folder of the socket is for the own user, as is that of the node agent's. */
const FOLDER_MODE = 0o700;

/** Settings and ports of {@link SharedSession}; `path` is the siblings' socket. */
export interface SharedSessionOptions extends HandedPodsOptions {
  /** Path of the node agent's socket. */
  readonly agentPath: string;
}

/**
 * Gets its pods from the holder, the one proxy of the node that has a session with the node agent. The holder has the lock of the
 * path; the first sibling that gets the lock after it becomes the next holder.
 */
export class SharedSession {
  readonly #options: SharedSessionOptions;
  readonly #handler: ZdsProxyHandler;
  readonly #handed: HandedPods;
  /** The session with the node agent, once this process is the holder. */
  readonly #agent: ZdsProxy;
  /** The session with the holder; its successor while a former holder drains. */
  #holder: ZdsProxy;
  #lock: FileLock | null = null;
  #claims: Timer | null = null;
  #drains = false;
  #work: Promise<void> = Promise.resolve();

  /** `handler` serves the pods of this process. */
  constructor(options: SharedSessionOptions, handler: ZdsProxyHandler) {
    this.#options = options;
    this.#handler = handler;
    this.#handed = new HandedPods(options);
    this.#agent = this.#client(options.agentPath, 'serving', this.#holderHandler());
    this.#holder = this.#client(options.path, 'serving', handler);
  }

  /** Number of proxies that this process hands its pods to; null while it is not the holder. */
  get siblings(): number | null {
    return this.#lock === null ? null : this.#handed.siblings;
  }

  /** Becomes the holder when there is none, else connects to it. Throws when the folder or the lock cannot be made. */
  start(): void {
    mkdirSync(dirname(this.#options.path), { recursive: true, mode: FOLDER_MODE });
    if (this.#claim()) return;
    this.#holder.start();
    this.#claims = this.#options.clock.every(HOLDER_CLAIM_MS, () => this.#claimAgain());
  }

  /**
   * Leaves the session to a sibling. A holder keeps its own session for removals until the next holder has told it which pods
   * there are.
   */
  drain(): void {
    if (this.#drains) return;
    this.#drains = true;
    this.#claims?.cancel();
    if (this.#lock === null) {
      this.#holder.drain();
      return;
    }
    this.#agent.drain();
    this.#resign();
    this.#holder = this.#client(this.#options.path, 'draining', {
      ...this.#handler,
      snapshot: async (uids) => {
        await this.#handler.snapshot(uids);
        await this.#agent.close();
      },
    });
    this.#holder.start();
  }

  /** Ends all sessions and leaves the holder's part to a sibling. Idempotent. */
  async close(): Promise<void> {
    this.#drains = true;
    this.#claims?.cancel();
    this.#resign();
    await this.#work;
    await Promise.all([this.#holder.close(), this.#agent.close()]);
  }

  #client(path: string, state: ZdsHello['state'], handler: ZdsProxyHandler): ZdsProxy {
    const { clock, log, group } = this.#options;
    return new ZdsProxy({ path, hello: { group, state }, clock, log }, handler);
  }

  #claimAgain(): void {
    try {
      this.#claim();
    } catch (error) {
      // The next attempt follows soon; without a free descriptor this process would be a poor holder.
      const { path, log } = this.#options;
      log.debug({ path, reason: errorText(error) }, 'zds.claim-failed');
    }
  }

  #claim(): boolean {
    const { path, group, log } = this.#options;
    this.#lock = lockFile(`${path}.lock`);
    if (this.#lock === null) return false;
    this.#claims?.cancel();
    log.info({ path, group }, 'zds.holder-elected');
    this.#work = this.#holder.close().then(() => {
      if (!this.#drains) this.#agent.start();
    });
    return true;
  }

  /** The siblings' sessions end first, so that the next holder finds the path free. */
  #resign(): void {
    this.#handed.close();
    if (this.#lock === null) return;
    this.#lock.release();
    this.#lock = null;
    this.#options.log.info({ path: this.#options.path }, 'zds.holder-resigned');
  }

  #holderHandler(): ZdsProxyHandler {
    const own = this.#handler;
    const handed = this.#handed;
    return {
      ...own,
      add: (uid: string, info: ZdsWorkloadInfo, netnsFd: number) =>
        // The descriptor is duplicated before its owner may close it.
        together([handed.add(uid, info, netnsFd), own.add(uid, info, netnsFd)]),
      del: (uid) => together([handed.remove(uid), own.del(uid)]),
      snapshot: async (uids) => {
        await own.snapshot(uids);
        await handed.complete(uids);
      },
    };
  }
}

/** Waits for all of the work. Rejects with ZDS_REFUSED that names everything that failed. */
async function together(work: readonly Promise<void>[]): Promise<void> {
  const failures = (await Promise.allSettled(work))
    .filter((result) => result.status === 'rejected')
    .map(({ reason }) => errorText(reason));
  if (failures.length > 0) throw new MeshError('ZDS_REFUSED', failures.join('; '));
}
