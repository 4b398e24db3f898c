import * as z from 'zod';
import type { Clock } from '../clock/clock.ts';
import { errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import type { Presence } from './contract.ts';
import { PRESENCE_KEPT_MS, PRESENCE_MAX } from './limits.ts';
import { asBusError } from './redis-client.ts';
import type { RedisClient } from './redis-client.ts';

/** An entry of a list: the time it was written, and the member's report. */
export function presenceEntrySchema<Body>(
  body: z.ZodType<Body>,
): z.ZodType<{ readonly at: number; readonly body: Body }> {
  return z.object({ at: z.number(), body });
}

/** Dependencies of a presence list. */
export interface PresenceDeps<Body> {
  readonly name: string;
  readonly body: z.ZodType<Body>;
  readonly key: string;
  readonly commands: RedisClient;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * A presence list in one hash: member → the time it was last written, and its report. All members of a node share one machine
 * and so one clock. The entry of a killed member stays until its time is over.
 */
export class RedisPresence<Body> implements Presence<Body> {
  readonly #deps: PresenceDeps<Body>;
  readonly #entry: z.ZodType<{ readonly at: number; readonly body: Body }>;

  constructor(deps: PresenceDeps<Body>) {
    this.#deps = deps;
    this.#entry = presenceEntrySchema(deps.body);
  }

  async announce(member: string, body: Body): Promise<void> {
    const { commands, key, clock, name } = this.#deps;
    try {
      await commands
        .multi()
        .hset(key, member, JSON.stringify({ at: clock.now(), body }))
        .pexpire(key, PRESENCE_KEPT_MS)
        .exec();
    } catch (error) {
      throw asBusError(error, `presence ${name} of ${member}`);
    }
  }

  async leave(member: string): Promise<void> {
    const { commands, key, name } = this.#deps;
    try {
      await commands.hdel(key, member);
    } catch (error) {
      throw asBusError(error, `presence ${name} of ${member}`);
    }
  }

  async members(maxAgeMs: number): Promise<ReadonlyMap<string, Body>> {
    const { commands, key, clock, name } = this.#deps;
    const present = new Map<string, Body>();
    try {
      const rows = await commands.hgetall(key);
      const now = clock.now();
      for (const [member, text] of Object.entries(rows)) {
        const row = this.#read(member, text);
        const age = row === null ? Infinity : Math.abs(now - row.at);
        if (row !== null && age <= maxAgeMs && present.size < PRESENCE_MAX) {
          present.set(member, row.body);
        } else if (age > PRESENCE_KEPT_MS) await commands.hdel(key, member);
      }
    } catch (error) {
      throw asBusError(error, `presence ${name}`);
    }
    return present;
  }

  /** Null for an unreadable entry: a member of another version counts as absent. */
  #read(member: string, text: string): { readonly at: number; readonly body: Body } | null {
    const { log, name } = this.#deps;
    try {
      return this.#entry.parse(JSON.parse(text));
    } catch (error) {
      log.debug({ presence: name, member, error: errorText(error) }, 'bus.presence-unreadable');
      return null;
    }
  }
}
