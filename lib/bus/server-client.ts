import { Redis } from 'ioredis';
import type { RedisOptions } from 'ioredis';
import { Copies } from './copies.ts';

/** A client of one server, or of a master that sentinels name. Its copies end with it. */
export class ServerClient extends Redis<'legacy'> {
  readonly #copies = new Copies();

  /**
   * Copies the client, as ioredis does; BullMQ makes its blocking connections by it. The result type is `never` because the
   * type of the base class follows the replies' shape, which is always the same here.
   */
  override duplicate(override: Partial<RedisOptions> = {}): never {
    const copy = new ServerClient({ ...this.options, ...override, replyMapping: 'legacy' });
    this.#copies.add(copy);
    return copy as never;
  }

  override disconnect(reconnect = false): void {
    super.disconnect(reconnect);
    if (!reconnect) this.#copies.end();
  }
}
