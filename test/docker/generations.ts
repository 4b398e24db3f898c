/** Replaces node proxies under load, generation after generation, in a mesh of containers. */
import { openNetns, closeFd } from '../../lib/linux/netns.ts';
import type { Compose, ContainerLoad } from '../support/compose.ts';
import type { DockerHost } from '../support/docker-host.ts';
import { until } from '../support/until.ts';
import { KeptConnections } from '../upgrade/kept.ts';

/** The number of successful requests that shows that a load goes on. */
const ENOUGH = 10;
const GOES_ON_MS = 90_000;
const MADE_MS = 60_000;

/** The traffic that must not be disturbed. */
export interface Traffic {
  readonly load: ContainerLoad;
  readonly kept: KeptConnections;
}

/** A mesh of containers under load. */
export class Generations {
  readonly #host: DockerHost;
  readonly #compose: Compose;
  readonly #traffic: Traffic;
  readonly #say: (line: string) => void;

  constructor(host: DockerHost, compose: Compose, traffic: Traffic, say: (line: string) => void) {
    this.#host = host;
    this.#compose = compose;
    this.#traffic = traffic;
    this.#say = say;
  }

  /** Replaces the proxies of both nodes; throws when that drops a kept connection. */
  async next(number: number): Promise<void> {
    await this.#step(`generation ${number}`, async () => {
      await this.#compose.weft(['upgrade', '--timeout', '120s', 'node-proxy']);
    });
  }

  /** Replaces proxies while the containers of a service are frozen; these go on afterwards. */
  async without(service: string, heldBack: boolean): Promise<void> {
    const frozen = await this.#compose.containers(service);
    const before = await this.#compose.containers('node-1-proxy');
    await this.#step(`generation without ${service}`, async () => {
      await this.#host.docker('pause', ...frozen);
      const done = this.#compose.weft(['upgrade', '--timeout', '180s', 'node-1/node-proxy']);
      let over = false;
      void done.then(
        () => (over = true),
        () => (over = true),
      );
      try {
        await until(
          async () =>
            over || (await this.#compose.containers('node-1-proxy')).length > before.length,
          { what: 'the new container', timeoutMs: MADE_MS },
        );
        if (!heldBack) await done;
        await this.#goesOn(`while ${service} is away`);
        if (heldBack && over) throw new Error('a proxy took over without what it needs');
      } finally {
        await this.#host.docker('unpause', ...frozen);
      }
      await done;
    });
  }

  async #step(what: string, work: () => Promise<void>): Promise<void> {
    const start = performance.now();
    await work();
    await this.#goesOn(`after ${what}`);
    const { kept } = this.#traffic;
    const dropped = await kept.dropped();
    const seconds = ((performance.now() - start) / 1_000).toFixed(1);
    this.#say(`${what}: ${seconds} s, ${dropped} of ${kept.count} dropped`);
    if (dropped > 0) throw new Error(`${what}: ${dropped} of ${kept.count} connections dropped`);
    await kept.open();
  }

  async #goesOn(what: string): Promise<void> {
    const { load } = this.#traffic;
    const wanted = load.answers + ENOUGH;
    await until(() => load.answers >= wanted, { what: `answers ${what}`, timeoutMs: GOES_ON_MS });
  }
}

/** Opens kept connections from one pod to another, used by this process from inside the pod's network. */
export async function keptFrom(
  host: DockerHost,
  compose: Compose,
  service: string,
  to: { readonly ip: string; readonly port: number },
): Promise<KeptConnections> {
  const [container = ''] = await compose.containers(service);
  const [facts] = await host.inspect(container);
  const path = `/proc/${facts?.State.Pid ?? 0}/ns/net`;
  // Reports a missing namespace now and not at the first connection.
  closeFd(openNetns(path));
  const kept = new KeptConnections(path, to);
  await kept.open();
  return kept;
}
