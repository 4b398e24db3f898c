import { Cluster } from 'ioredis';
import type { ClusterNode, ClusterOptions, Command, Redis } from 'ioredis';
import { errorText } from '../errors/mesh-error.ts';
import { Copies } from './copies.ts';

/** Options of a cluster client, with those of ioredis. */
export interface ClusterClientOptions {
  readonly nodes: readonly ClusterNode[];
  readonly options: Omit<ClusterOptions, 'redisOptions'>;
  /** Options of the connections to the cluster's servers. */
  readonly serverOptions: NonNullable<ClusterOptions['redisOptions']>;
  /** Commands wait for the cluster instead of failing at once; for consumers, which bound what waits themselves. */
  readonly waits: boolean;
  /** Called before a connection to a server is made, with its options: the password may have been rotated. */
  readonly beforeConnect: (server: Redis) => void;
  /** Delay before the given attempt to reach what is lost. */
  readonly delayMs: (attempt: number) => number;
}

/** Answers after which the map of slots, or the server of a slot, is in doubt. */
const DOUBTFUL = /^(CLUSTERDOWN|MASTERDOWN|Command timed out|Socket timeout|Connection is closed)/;

/**
 * A client of a Redis Cluster that knows, as a client of one server does, whether its server is there. It remembers the slots
 * its commands went to (one for the mesh, one for a node) and is `linked` while the masters of those slots answer. It adds two
 * events to those of ioredis: `linked`, and `unlinked` when such a master is lost or another server took the slot, whose data may
 * be older.
 */
export class ClusterClient extends Cluster<'legacy'> {
  readonly #given: ClusterClientOptions;
  /** Slot → its master when last looked. */
  readonly #owners = new Map<number, string>();
  readonly #copies = new Copies();
  #linked = false;
  #checking = false;
  #attempts = 0;
  #timer: NodeJS.Timeout | null = null;
  #closed = false;

  constructor(given: ClusterClientOptions) {
    // Replies in one shape, whatever the servers speak.
    const redisOptions = { ...given.serverOptions, replyMapping: 'legacy' as const };
    super([...given.nodes], { ...given.options, redisOptions });
    this.#given = given;
    this.on('+node', given.beforeConnect);
    this.on('node error', (error: Error) => {
      if (/^(WRONGPASS|NOAUTH)/.test(error.message)) this.nodes().forEach(given.beforeConnect);
    });
    this.on('-node', (server: Redis) => {
      if ([...this.#owners.values()].includes(keyOf(server))) this.#lose();
    });
    this.on('refresh', () => this.#compare());
    // The map of slots is as new as the connection.
    this.on('ready', () => void this.#check(false));
    this.on('close', () => this.#unlink());
  }

  /** Whether the masters of the slots in use answer. */
  get linked(): boolean {
    return this.#linked;
  }

  override sendCommand(...args: Parameters<Cluster['sendCommand']>): unknown {
    const [command] = args;
    this.#learn(command);
    if (!this.#linked && !this.#given.waits && command.name !== 'cluster') {
      command.reject(new Error('Connection is closed.'));
      return command.promise;
    }
    const reply = super.sendCommand(...args);
    command.promise.catch((error: unknown) => {
      if (DOUBTFUL.test(errorText(error))) this.#lose();
    });
    return reply;
  }

  override disconnect(reconnect = false): void {
    if (!reconnect) {
      this.#closed = true;
      if (this.#timer !== null) clearTimeout(this.#timer);
    }
    super.disconnect(reconnect);
    if (!reconnect) this.#copies.end();
  }

  /**
   * Copies the client, as ioredis does; BullMQ makes its blocking connections by it. The result type is `never` because the type of
   * the base class follows the replies' shape, which is always the same here.
   */
  override duplicate(nodes: ClusterNode[] = [], override: ClusterOptions = {}): never {
    const { redisOptions, ...options } = override;
    const given = this.#given;
    const copy = new ClusterClient({
      ...given,
      nodes: nodes.length > 0 ? nodes : given.nodes,
      options: { ...given.options, ...options },
      serverOptions: { ...given.serverOptions, ...redisOptions },
    });
    this.#copies.add(copy);
    return copy as never;
  }

  #learn(command: Command): void {
    if (command.getKeys().length === 0) return;
    const slot = command.getSlot();
    if (this.#owners.has(slot)) return;
    this.#owners.set(slot, this.slots[slot]?.[0] ?? '');
  }

  /** Called after each refresh of the map of slots: another master may have other data. */
  #compare(): void {
    let moved = false;
    for (const [slot, owner] of this.#owners) {
      const now = this.slots[slot]?.[0] ?? '';
      moved ||= owner !== '' && now !== owner;
      this.#owners.set(slot, now);
    }
    if (!moved || !this.#linked) return;
    // Commands need not wait: they were redirected, or will be.
    this.emit('unlinked');
    this.emit('linked');
  }

  #lose(): void {
    if (!this.#linked) return;
    this.#unlink();
    void this.#check(true);
  }

  #unlink(): void {
    if (!this.#linked) return;
    this.#linked = false;
    this.emit('unlinked');
  }

  /** Asks the masters of the slots in use whether they serve, until they do. */
  async #check(look: boolean): Promise<void> {
    if (this.#checking || this.#linked || this.status !== 'ready') return;
    this.#checking = true;
    try {
      if (look) await this.#refresh();
      await Promise.all([...new Set(this.#owners.values())].map((key) => this.#serves(key)));
      this.#attempts = 0;
      this.#linked = this.status === 'ready';
    } catch (error) {
      this.emit('node error', error);
      this.#again();
    } finally {
      this.#checking = false;
    }
    if (this.#linked) this.emit('linked');
  }

  #again(): void {
    if (this.#closed) return;
    this.#attempts += 1;
    const delayMs = this.#given.delayMs(this.#attempts);
    this.#timer = setTimeout(() => void this.#check(true), delayMs);
  }

  async #refresh(): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.refreshSlotsCache((error) => {
      if (error === undefined || error === null) resolve();
      else reject(error);
    });
    try {
      await promise;
    } catch (error) {
      // No known server answers: start again with the configured ones.
      if (this.status === 'ready' && !this.#closed) this.disconnect(true);
      throw error;
    }
  }

  async #serves(key: string): Promise<void> {
    const server = this.nodes('master').find((one) => keyOf(one) === key);
    if (server === undefined) throw new Error(`no connection to the master ${key}`);
    const info = await server.cluster('INFO');
    if (!/^cluster_state:ok/m.test(info)) throw new Error('the cluster does not serve its slots');
  }
}

function keyOf(server: Redis): string {
  return `${server.options.host ?? ''}:${server.options.port ?? ''}`;
}
