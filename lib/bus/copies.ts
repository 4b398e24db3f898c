/** Events of a client that is about to connect, or has just done so. */
const CONNECTING = ['connecting', 'connect', 'ready', 'reconnecting'] as const;

/** The part of a client that {@link Copies} needs. */
interface Endable {
  on(event: string, listener: () => void): unknown;
  disconnect(): void;
}

/**
 * The copies of a client, which end with it. BullMQ makes its blocking connection as a copy, and may connect it again after
 * its worker has closed: a reset of that connection waits for its end, and does not look for the worker afterwards.
 */
export class Copies {
  readonly #copies: Endable[] = [];

  /** Ends `copy` with the others. */
  add(copy: Endable): void {
    this.#copies.push(copy);
  }

  /** Disconnects all copies that were added, for good. */
  end(): void {
    for (const copy of this.#copies.splice(0)) {
      // Its owner no longer listens, and ioredis would print its errors.
      copy.on('error', () => undefined);
      for (const event of CONNECTING) copy.on(event, () => copy.disconnect());
      copy.disconnect();
    }
  }
}
