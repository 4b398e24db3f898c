/** Runs a mesh of containers for tests: the engine, the project, and queries to both. */
import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Compose } from '../support/compose.ts';
import type { ComposeOptions } from '../support/compose.ts';
import { DockerHost } from '../support/docker-host.ts';
import { until } from '../support/until.ts';
import { WEFT_IMAGE, weftArchive } from '../support/weft-image.ts';

/** The number of successful requests that shows that a load goes on. */
export const ENOUGH = 10;
const UP_TIMEOUT_MS = 180_000;
const HEALTHY_MS = 90_000;
/** The paths of shells. */
const SHELLS = ['/bin/dash', '/bin/bash'];

/** The services that are actors. */
export const ACTORS = [
  'ca',
  'control-plane',
  'xds-ingester',
  'policy-evaluator',
  'node-1-agent',
  'node-1-fetcher',
  'node-1-proxy',
  'node-2-agent',
  'node-2-fetcher',
  'node-2-proxy',
] as const;

/** The actors without a shell. Only the node agent needs one, for its iptables commands. */
export const WITHOUT_SHELL: readonly string[] = ACTORS.filter((name) => !name.endsWith('-agent'));

/** Returns the value, which must not be null or undefined. */
export function present<T>(value: T | null | undefined): T {
  if (value === null || value === undefined)
    throw new Error('an earlier test did not get that far');
  return value;
}

/** The engine and the running project. */
export class Rig {
  #host: DockerHost | null = null;
  #mesh: Compose | null = null;

  /** Makes a rig over an existing engine and project. */
  static over(host: DockerHost, mesh: Compose): Rig {
    const rig = new Rig();
    rig.#host = host;
    rig.#mesh = mesh;
    return rig;
  }

  get host(): DockerHost {
    return present(this.#host);
  }

  get compose(): Compose {
    return present(this.#mesh);
  }

  /**
   * Builds the image in at most `limitMs` and starts an engine that has it; its containers have their own network namespace.
   * Returns null, or the reason why there is no image. Rejects when the build fails.
   */
  async build(limitMs: number): Promise<string | null> {
    const archive = await weftArchive(limitMs);
    if ('missing' in archive) return archive.missing;
    try {
      this.#host = await DockerHost.create();
      await this.host.start('own');
      await this.host.docker('load', '--quiet', '--input', archive.path);
      await this.host.docker('tag', WEFT_IMAGE, 'weft');
      return null;
    } catch (error) {
      await this.remove();
      throw error;
    }
  }

  /** Brings a project up. */
  async up(program: string, options: ComposeOptions = {}): Promise<Compose> {
    const name = `weft${randomBytes(3).toString('hex')}`;
    this.#mesh = new Compose(this.host, program, name, options);
    await this.#mesh.call('up', '--detach', '--no-build');
    return this.#mesh;
  }

  /** Takes the project down. */
  async down(): Promise<void> {
    const mesh = this.#mesh;
    this.#mesh = null;
    if (mesh === null) return;
    // Docker frees the endpoints of a removed container a moment later, and does not remove their network before.
    const ended = await until(
      async () => {
        const call = mesh.call('down', '--volumes', '--timeout', '5');
        const said = await call.then(
          () => '',
          (error: unknown) => String((error as { stderr?: unknown }).stderr),
        );
        return said.includes('has active endpoints') ? null : { call };
      },
      { what: 'the networks to be free' },
    );
    await ended.call;
  }

  /** Takes everything down, also after a partial start. */
  async remove(): Promise<void> {
    try {
      await this.down();
    } finally {
      await this.#host?.remove();
    }
  }

  /** Requests a URL from a pod; the answer's body names the answering pod. */
  async ask(from: string, url: string): Promise<string> {
    const said = await this.compose.exec(from, 'curl', '-fsS', '-m', '60', url);
    return (JSON.parse(said) as { name: string }).name;
  }

  /** Waits until a pod of node-2 answers one of node-1; returns the address of the service. */
  async answered(): Promise<string> {
    const address = await this.compose.serviceAddress('api');
    await until(
      async () => /^api-[12]$/.test(await this.ask('client-server', `http://${address}/`)),
      {
        what: 'an answer across nodes',
        timeoutMs: UP_TIMEOUT_MS,
      },
    );
    return address;
  }

  /** Waits until the engine reports a container as healthy. */
  async healthy(container: string): Promise<void> {
    await until(
      async () => {
        const [facts] = await this.host.inspect(container);
        return facts?.State.Health?.Status === 'healthy';
      },
      { what: `${container} to be healthy`, timeoutMs: HEALTHY_MS },
    );
  }

  /** Writes a Compose file that removes the shell from every actor's container but the agents'. */
  async withoutShells(): Promise<string> {
    const volumes = SHELLS.map((path) => `/dev/null:${path}:ro`);
    const path = join(this.host.folder, 'without-shells.yml');
    const services = Object.fromEntries(WITHOUT_SHELL.map((name) => [name, { volumes }]));
    await writeFile(path, JSON.stringify({ services }));
    return path;
  }
}
