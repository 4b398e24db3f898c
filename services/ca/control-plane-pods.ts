import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import * as z from 'zod';
import { request } from '../../lib/http/node-http.ts';
import { Backoff } from '../../lib/clock/backoff.ts';
import { pause } from '../../lib/clock/clock.ts';
import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { readIfPresent, replaceFile } from '../../lib/files/atomic-file.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { CACHE_WRITE_DELAY_MS, MAX_WATCH_LINE_BYTES, WATCH_BACKOFF } from './limits.ts';
import { PodTable, parsePod } from './pods.ts';
import type { FollowedPods, KnownPod } from './pods.ts';

/** Collaborators of {@link ControlPlanePods}. */
export interface ControlPlanePodsDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'info' | 'warn'>;
  /** Writes the cache; default {@link replaceFile}. */
  readonly replace?: typeof replaceFile;
}

/** The watch of the manifest API (services/control-plane/api/object-watchers.ts). */
const watchLine = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('LIST'),
    version: z.literal(2, 'the control plane speaks another version of the watch'),
  }),
  z.object({ type: z.literal('SYNC') }),
  z.object({ type: z.enum(['ADDED', 'MODIFIED', 'DELETED']), object: z.unknown() }),
]);

const cached = z.array(
  z.object({
    namespace: z.string(),
    name: z.string(),
    uid: z.string(),
    serviceAccount: z.string(),
    node: z.string(),
    failed: z.boolean(),
  }),
);

const CACHE_FILE = 'pods.json';

/**
 * Follows the pods over the control plane's socket. It keeps the last known pods in a file, so that the CA renews
 * certificates while the control plane is away.
 */
export class ControlPlanePods implements FollowedPods {
  readonly #socketPath: string;
  readonly #cachePath: string;
  readonly #deps: ControlPlanePodsDeps;
  #table = new PodTable();
  /** The pods received since a list began; they replace {@link #table} at its end. */
  #listed: PodTable | null = null;
  readonly #closing = new AbortController();
  readonly #backoff = new Backoff(WATCH_BACKOFF);
  #synced = false;
  #connected = false;
  #problem: string | null = null;
  #following: Promise<void> = Promise.resolve();
  /** The write under way; there is only one, because on a slow disk several would each hold a copy of all pods. */
  #writing: Promise<void> | null = null;
  /** True when the pods changed since the last write. */
  #unwritten = false;
  #writeTimer: Timer | null = null;

  constructor(socketPath: string, stateDir: string, deps: ControlPlanePodsDeps) {
    this.#socketPath = socketPath;
    this.#cachePath = join(stateDir, CACHE_FILE);
    this.#deps = deps;
  }

  get synced(): boolean {
    return this.#synced;
  }

  /** True while the control plane sends changes as they happen. */
  get connected(): boolean {
    return this.#connected;
  }

  /** The reason why the control plane is not followed now; null when it is. */
  get problem(): string | null {
    return this.#problem;
  }

  runsOnNode(node: string, namespace: string, serviceAccount: string): boolean {
    return this.#table.runsOnNode(node, namespace, serviceAccount);
  }

  find(namespace: string, name: string, uid: string): KnownPod | null {
    return this.#table.find(namespace, name, uid);
  }

  /** Reads the cache and begins to follow. Resolves when the cache is read; {@link done} is the rest. */
  async start(): Promise<void> {
    await this.#readCache();
    this.#following = this.#follow();
  }

  /** Settles when following has ended; rejects only for a defect. */
  get done(): Promise<void> {
    return this.#following;
  }

  /** Stops following and writes outstanding changes to the cache. */
  async close(): Promise<void> {
    this.#closing.abort(new MeshError('ACTOR_DEADLINE', 'the pod registry is closed'));
    await this.#following;
    this.#writeTimer?.cancel();
    this.#writeTimer = null;
    await this.#writing;
    if (this.#unwritten) await this.#write();
  }

  async #follow(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      try {
        await this.#watchOnce(signal);
        throw new MeshError('STATE_UNAVAILABLE', 'the control plane ended the watch');
      } catch (error) {
        this.#connected = false;
        if (signal.aborted) return;
        this.#report(errorText(error));
      }
      await pause(this.#deps.clock, this.#backoff.next(), signal);
    }
  }

  async #watchOnce(signal: AbortSignal): Promise<void> {
    this.#listed = null;
    const response = await get(this.#socketPath, '/watch?kind=Pod', signal);
    for await (const line of lines(response)) {
      this.#apply(line);
    }
  }

  #apply(line: string): void {
    const event = watchLine.parse(JSON.parse(line));
    switch (event.type) {
      case 'LIST':
        this.#listed = new PodTable();
        return;
      case 'SYNC':
        this.#takeList();
        break;
      default: {
        const pod = this.#parse(event.object);
        if (pod === null) return;
        const table = this.#listed ?? this.#table;
        if (event.type === 'DELETED') table.remove(pod.namespace, pod.name);
        else table.put(pod);
        if (this.#listed !== null) return;
      }
    }
    this.#writeSoon();
  }

  #takeList(): void {
    if (this.#listed === null) {
      throw new MeshError('STATE_INVALID', 'the pod watch ended a list that it never began');
    }
    this.#table = this.#listed;
    this.#listed = null;
    this.#synced = true;
    this.#connected = true;
    this.#problem = null;
    this.#backoff.reset();
    this.#deps.log.info({ pods: this.#table.size }, 'pods.synced');
  }

  /** Returns null for a pod that cannot be read: it must not hide the others, and its own identity stays refused. */
  #parse(object: unknown): KnownPod | null {
    try {
      return parsePod(object);
    } catch (error) {
      this.#deps.log.warn({ problem: errorText(error) }, 'pod.ignored');
      return null;
    }
  }

  #report(problem: string): void {
    if (problem === this.#problem) return;
    this.#problem = problem;
    this.#deps.log.warn(
      { problem, socket: this.#socketPath, keepsLastKnown: this.#synced },
      'pods.follow-failed',
    );
  }

  async #readCache(): Promise<void> {
    try {
      const content = await readIfPresent(this.#cachePath);
      if (content === null) return;
      const pods = cached.parse(JSON.parse(content));
      this.#table.replace(pods);
      this.#synced = true;
      this.#deps.log.info({ pods: pods.length }, 'pods.restored');
    } catch (error) {
      this.#deps.log.warn(
        { problem: errorText(error), path: this.#cachePath },
        'pod-cache.unusable',
      );
    }
  }

  #writeSoon(): void {
    this.#unwritten = true;
    if (this.#writing !== null || this.#writeTimer !== null) return;
    this.#writeTimer = this.#deps.clock.after(CACHE_WRITE_DELAY_MS, () => {
      this.#writeTimer = null;
      this.#writing = this.#write().then(() => {
        this.#writing = null;
        if (this.#unwritten && !this.#closing.signal.aborted) this.#writeSoon();
      });
    });
  }

  async #write(): Promise<void> {
    this.#unwritten = false;
    const { log, replace = replaceFile } = this.#deps;
    try {
      await replace(this.#cachePath, JSON.stringify(this.#table.all()), 0o600);
    } catch (error) {
      log.warn({ problem: errorText(error), path: this.#cachePath }, 'pod-cache.write-failed');
    }
  }
}

function get(socketPath: string, path: string, signal: AbortSignal): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const call = request({ socketPath, path, signal, agent: false }, (response) => {
      if (response.statusCode === 200) {
        resolve(response);
        return;
      }
      response.resume();
      reject(
        new MeshError(
          'STATE_UNAVAILABLE',
          `the control plane answered with status ${response.statusCode ?? 0}`,
        ),
      );
    });
    call.on('error', reject);
    call.end();
  });
}

async function* lines(response: IncomingMessage): AsyncGenerator<string> {
  let parts: string[] = [];
  let size = 0;
  response.setEncoding('utf8');
  for await (const chunk of response as AsyncIterable<string>) {
    const pieces = chunk.split('\n');
    for (const [index, piece] of pieces.entries()) {
      parts.push(piece);
      size += piece.length;
      if (size > MAX_WATCH_LINE_BYTES) {
        throw new MeshError('STATE_INVALID', 'a line of the pod watch is too long');
      }
      if (index === pieces.length - 1) break;
      const line = parts.join('');
      parts = [];
      size = 0;
      if (line !== '') yield line;
    }
  }
}
