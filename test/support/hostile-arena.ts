/** A mesh with a well-behaved neighbour, for peers that do not behave. */
import type { ExecutionContext } from 'ava';
import type { ListenerSettings } from '../../workers/listener/protocol/settings.ts';
import { hostilePeer } from './hostile-peer.ts';
import type { HostilePeer, HostilePeerOptions } from './hostile-peer.ts';
import { TestMesh } from './listener-kit.ts';
import type { TestPod } from './listener-kit.ts';
import { readAll } from './tunnel-kit.ts';
import { until } from './until.ts';

const EVIL = 'spiffe://cluster.local/ns/demo/sa/evil';
const BULK = Buffer.alloc(4 * 1_048_576);

/** The 99th percentile of times, in milliseconds; NaN of none. */
export function p99(times: readonly number[]): number {
  const sorted = times.toSorted((left, right) => left - right);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * 0.99))] ?? Number.NaN;
}

/**
 * One listener thread with the pod `web`, which echoes on 8080 and sends 4 MiB on 9090. The pod `client` makes one request to it after another, each
 * over a connection of its own. `evil` has a certificate of the mesh, and speaks for itself.
 */
export class Arena {
  readonly mesh: TestMesh;
  readonly evil: TestPod;
  readonly web: TestPod;
  /** The `:authority` of the echo. */
  readonly authority: string;
  /** Milliseconds of each successful request of the neighbour. */
  readonly served: number[] = [];
  readonly #client: TestPod;
  #on = true;
  readonly #neighbour: Promise<unknown>;

  private constructor(mesh: TestMesh, pods: { client: TestPod; web: TestPod; evil: TestPod }) {
    this.mesh = mesh;
    this.web = pods.web;
    this.evil = pods.evil;
    this.#client = pods.client;
    this.authority = `${pods.web.ip}:8080`;
    this.#neighbour = this.#ask().catch((error: unknown) => error);
  }

  /** Starts the mesh and its neighbour. */
  static async start(
    t: ExecutionContext,
    settings: Partial<ListenerSettings> = {},
  ): Promise<Arena> {
    const mesh = await TestMesh.start(t, { threads: 1, handshakeTimeoutMs: 4_000, ...settings });
    const client = await mesh.addPod('client');
    const web = await mesh.addPod('web');
    const evil = await mesh.addPod('evil', { enrolled: false });
    await web.serve(8080, (socket) => socket.pipe(socket));
    await web.serve(9090, (socket) => {
      socket.write(BULK);
      socket.resume().once('end', () => socket.destroy());
    });
    return new Arena(mesh, { client, web, evil });
  }

  /** Opens a tunnel of the peer that does not behave. */
  async attack(options?: HostilePeerOptions): Promise<HostilePeer> {
    const own = await this.mesh.credentials(EVIL);
    return hostilePeer(await this.evil.connect(this.web.ip, 15_008), own, options);
  }

  /** Waits until the neighbour has finished some more requests. */
  async neighbourGoesOn(what: string, requests = 3): Promise<void> {
    const from = this.served.length;
    await until(() => this.served.length >= from + requests, {
      what: `the neighbour during ${what}`,
      timeoutMs: 60_000,
    });
  }

  /** Stops the neighbour; resolves with its failure, null when there was none. */
  endNeighbour(): Promise<unknown> {
    this.#on = false;
    return this.#neighbour;
  }

  async #ask(): Promise<null> {
    while (this.#on) {
      const startedMs = performance.now();
      const socket = await this.#client.connect(this.web.ip, 8080);
      const text = `request ${this.served.length}`;
      socket.end(text);
      const answer = (await readAll(socket)).toString();
      if (answer !== text) throw new Error(`the neighbour got ${JSON.stringify(answer)}`);
      this.served.push(performance.now() - startedMs);
    }
    return null;
  }
}

/** Makes frames in pieces, so that the event loop of the test goes on between them. */
export function repeat(count: number, make: (n: number) => Buffer): Buffer[] {
  const pieces: Buffer[] = [];
  for (let from = 0; from < count; from += 500) {
    const length = Math.min(500, count - from);
    pieces.push(Buffer.concat(Array.from({ length }, (_, n) => make(from + n))));
  }
  return pieces;
}

/** The id of a client's n-th stream, from 0. */
export function streamId(n: number): number {
  return 2 * n + 1;
}
