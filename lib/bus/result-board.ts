import { EventEmitter } from 'node:events';
import * as z from 'zod';
import type { Clock } from '../clock/clock.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import { RESULT_POLL_MS, RESULT_WAITS_MAX } from './limits.ts';
import { asBusError, isLinked, onLink } from './redis-client.ts';
import type { RedisClient } from './redis-client.ts';

/** Hints by channel that a result is there. All boards of a process share it. */
export class HintChannels {
  readonly #client: RedisClient;
  readonly #log: Logger;
  readonly #hints = new EventEmitter().setMaxListeners(0);
  #waits = 0;

  constructor(client: RedisClient, log: Logger) {
    this.#client = client;
    this.#log = log;
    client.on('message', (channel: string) => this.#hints.emit(channel));
    onLink(client, () => {
      for (const channel of this.#hints.eventNames()) this.#subscribe(String(channel));
    });
  }

  /** Calls `listener` on each hint until the result is called. Throws BUS_UNAVAILABLE beyond the bound of waits. */
  listen(channel: string, listener: () => void): () => void {
    if (this.#waits >= RESULT_WAITS_MAX) {
      throw new MeshError(
        'BUS_UNAVAILABLE',
        `more than ${RESULT_WAITS_MAX} results are waited for`,
      );
    }
    this.#waits += 1;
    const first = this.#hints.listenerCount(channel) === 0;
    this.#hints.on(channel, listener);
    if (first) this.#subscribe(channel);
    return () => {
      this.#waits -= 1;
      this.#hints.off(channel, listener);
      if (this.#hints.listenerCount(channel) > 0) return;
      this.#quietly(() => this.#client.unsubscribe(channel));
    };
  }

  /** Subscribes, then emits a hint: a result may have come before the subscription stood. */
  #subscribe(channel: string): void {
    this.#quietly(async () => {
      await this.#client.subscribe(channel);
      this.#hints.emit(channel);
    });
  }

  /** Logs a failure only: hints save time, and without them the waiter polls. */
  #quietly(command: () => Promise<unknown>): void {
    if (!isLinked(this.#client)) return;
    command().catch((error: unknown) => {
      this.#log.debug({ error: errorText(error) }, 'bus.hint-channel');
    });
  }
}

/** Dependencies of a board. */
export interface BoardDeps<Body> {
  readonly name: string;
  readonly body: z.ZodType<Body>;
  /** Key of a result; the channel of its hints has the same name. */
  readonly keyOf: (id: string) => string;
  readonly commands: RedisClient;
  readonly hints: HintChannels;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Short-lived results of jobs: each is a key with a lifetime and a hint on a channel of the same name. */
export class ResultBoard<Body> {
  readonly #deps: BoardDeps<Body>;

  constructor(deps: BoardDeps<Body>) {
    this.#deps = deps;
  }

  /** Publishes the result for `lifetimeMs`. */
  async put(id: string, body: Body, lifetimeMs: number): Promise<void> {
    const { commands, keyOf, name } = this.#deps;
    const key = keyOf(id);
    try {
      await commands.set(key, JSON.stringify(body), 'PX', Math.max(1, Math.round(lifetimeMs)));
      await commands.publish(key, '1');
    } catch (error) {
      throw asBusError(error, `result ${name} ${id}`);
    }
  }

  /** Waits for the result; null when `timeoutMs` passes first. Throws BUS_MESSAGE when it cannot be read. */
  async wait(id: string, timeoutMs: number, signal?: AbortSignal): Promise<Body | null> {
    const { clock, hints, keyOf } = this.#deps;
    const key = keyOf(id);
    const end = clock.monotonic() + timeoutMs;
    let hinted = Promise.withResolvers<void>();
    const release = hints.listen(key, () => hinted.resolve());
    const abort = (): void => hinted.resolve();
    signal?.addEventListener('abort', abort, { once: true });
    try {
      for (;;) {
        if (signal?.aborted === true) throw abortReason(signal);
        // Made before the look, so that a hint during it is not lost.
        hinted = Promise.withResolvers<void>();
        const found = await this.#read(key, id);
        if (found !== null) return found.body;
        const restMs = end - clock.monotonic();
        if (restMs <= 0) return null;
        const timer = clock.after(Math.min(restMs, RESULT_POLL_MS), () => hinted.resolve());
        await hinted.promise;
        timer.cancel();
      }
    } finally {
      signal?.removeEventListener('abort', abort);
      release();
    }
  }

  /** The result, null when there is none or Redis is away. Throws BUS_MESSAGE when it cannot be read. */
  async #read(key: string, id: string): Promise<{ body: Body } | null> {
    const { commands, log, name, body } = this.#deps;
    let text: string | null;
    try {
      text = await commands.get(key);
    } catch (error) {
      log.debug({ result: name, error: errorText(error) }, 'bus.result-unreachable');
      return null;
    }
    if (text === null) return null;
    const parsed = body.safeParse(parseJson(text));
    if (parsed.success) return { body: parsed.data };
    throw new MeshError('BUS_MESSAGE', `result ${name} ${id}: ${z.prettifyError(parsed.error)}`);
  }
}

/** The value, or undefined, which no schema accepts, when the text is not JSON. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function abortReason(signal: AbortSignal): Error {
  return signal.reason instanceof Error ? signal.reason : new MeshError('BUS_TIMEOUT', 'aborted');
}
