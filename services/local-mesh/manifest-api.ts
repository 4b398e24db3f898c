/** Client of the control plane's manifest API. */
import * as z from 'zod';
import { pause } from '../../lib/clock/clock.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { Backoff } from '../../lib/clock/backoff.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { Logger } from '../../lib/log/logger.ts';
import type { ManifestDocument } from './manifests.ts';
import { ask, askLines } from './unix-http.ts';

/** The result for one object. */
export interface AppliedObject {
  readonly kind: string;
  readonly namespace?: string | null;
  readonly name: string;
  readonly result?: string;
}

/** A Kubernetes pod phase. */
export type PodPhase = 'Pending' | 'Running' | 'Succeeded' | 'Failed';

/** The runtime's report about a pod. */
export interface PodStatus {
  readonly uid: string;
  readonly phase: PodPhase;
  readonly ready: boolean;
  readonly podIPs: readonly string[];
  readonly netns?: string;
}

/** The scheduler's choice of a node for a pod. */
export interface PodBinding {
  readonly uid: string;
  readonly nodeName: string;
}

const refusal = z.looseObject({
  errors: z.array(
    z.looseObject({
      source: z.string().default(''),
      index: z.number().default(0),
      path: z.string().default(''),
      reason: z.string(),
    }),
  ),
});

const watchEvent = z.discriminatedUnion('type', [
  z.looseObject({ type: z.literal('LIST'), version: z.literal(2) }),
  z.looseObject({ type: z.literal('SYNC') }),
  z.looseObject({ type: z.enum(['ADDED', 'MODIFIED', 'DELETED']), object: z.unknown() }),
]);

/** `LIST` begins a stream. At `SYNC` the objects since `LIST` are complete. */
export type WatchEvent = z.infer<typeof watchEvent>;

/** Bounds an apply; the control plane needs seconds for thousands of objects. */
const APPLY_TIMEOUT_MS = 60_000;
const WATCH_BACKOFF = { baseMs: 50, maxMs: 2_000 } as const;

/** Client of the manifest API at a unix socket. */
export class ManifestApi {
  readonly #socket: string;

  constructor(socket: string) {
    this.#socket = socket;
  }

  /** Creates or updates all objects, or none. Throws MANIFEST_INVALID with every problem, one per line. */
  async apply(documents: readonly ManifestDocument[]): Promise<readonly AppliedObject[]> {
    const body = await this.#send('/apply', documents);
    return (JSON.parse(body) as { applied: AppliedObject[] }).applied;
  }

  /** Deletes the objects; `missing` lists those that do not exist. */
  async delete(documents: readonly ManifestDocument[]): Promise<{
    readonly deleted: readonly AppliedObject[];
    readonly missing: readonly AppliedObject[];
  }> {
    return JSON.parse(await this.#send('/delete', documents)) as {
      deleted: AppliedObject[];
      missing: AppliedObject[];
    };
  }

  async #send(path: string, documents: readonly ManifestDocument[]): Promise<string> {
    const answer = await ask({
      socket: this.#socket,
      method: 'POST',
      path,
      body: { documents },
      timeoutMs: APPLY_TIMEOUT_MS,
    });
    if (answer.status === 200) return answer.body;
    throw refused(answer.status, answer.body);
  }

  /** Reports a pod's status. False when the control plane has no such pod, or another pod of that name. */
  async putPodStatus(namespace: string, name: string, status: PodStatus): Promise<boolean> {
    return this.#putPod(namespace, name, 'status', status);
  }

  /** Binds a pod to a node. False when the control plane has no such pod, or the pod is bound to another node. */
  async bindPod(namespace: string, name: string, binding: PodBinding): Promise<boolean> {
    return this.#putPod(namespace, name, 'binding', binding);
  }

  async #putPod(namespace: string, name: string, part: string, body: unknown): Promise<boolean> {
    const answer = await ask({
      socket: this.#socket,
      method: 'PUT',
      path: `/pods/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}/${part}`,
      body,
    });
    if (answer.status === 200) return true;
    if (answer.status === 404 || answer.status === 409) return false;
    throw refused(answer.status, answer.body);
  }

  /** Follows a kind until aborted. Opens a broken or malformed stream again, which then begins with a LIST. */
  async watch(
    kind: string,
    handler: (event: WatchEvent) => Promise<void>,
    options: { readonly signal: AbortSignal; readonly clock: Clock; readonly log: Logger },
  ): Promise<void> {
    const { signal, clock, log } = options;
    const backoff = new Backoff(WATCH_BACKOFF);
    while (!signal.aborted) {
      try {
        const path = `/watch?kind=${encodeURIComponent(kind)}`;
        let listing = false;
        for await (const line of askLines({ socket: this.#socket, path, signal })) {
          const event = watchEvent.parse(line);
          // A follower would take every object that it holds for deleted.
          if (event.type === 'SYNC' && !listing) {
            throw new MeshError('STATE_INVALID', 'the watch ended a list that it never began');
          }
          if (event.type === 'LIST' || event.type === 'SYNC') listing = event.type === 'LIST';
          backoff.reset();
          await handler(event);
        }
      } catch (error) {
        log.debug({ kind, error: errorText(error) }, 'manifest.watch-broken');
      }
      await pause(clock, backoff.next(), signal);
    }
  }
}

function refused(status: number, body: string): MeshError {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    // The body is not JSON; its text is the reason.
    parsed = null;
  }
  const problems = refusal.safeParse(parsed);
  if (!problems.success) {
    return new MeshError(
      'STATE_UNAVAILABLE',
      `the control plane answered ${status}: ${body.trim()}`,
    );
  }
  const lines = problems.data.errors.map((problem) => {
    const path = problem.path === '' ? '' : `${problem.path}: `;
    return `${problem.source}: document ${problem.index}: ${path}${problem.reason}`;
  });
  return new MeshError('MANIFEST_INVALID', lines.join('\n'), {
    detail: { problems: lines.length },
  });
}
