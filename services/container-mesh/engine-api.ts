/** The part of Docker's Engine API that a mesh of containers needs. */
import { z } from 'zod';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { ask, askJson, askLines } from '../local-mesh/unix-http.ts';

const labels = z.record(z.string(), z.string()).nullable().default({});

const summary = z.looseObject({
  Id: z.string(),
  Created: z.number(),
  State: z.string(),
  Status: z.string().default(''),
  Names: z.array(z.string()).default([]),
  Labels: labels,
  HostConfig: z.looseObject({ NetworkMode: z.string().default('') }).default({ NetworkMode: '' }),
});

const endpoint = z.looseObject({
  IPAddress: z.string().nullish(),
  GlobalIPv6Address: z.string().nullish(),
  IPAMConfig: z.unknown().optional(),
  Aliases: z.array(z.string()).nullish(),
});

const details = z.looseObject({
  Id: z.string(),
  Created: z.union([z.number(), z.string()]),
  Name: z.string().default(''),
  Image: z.string().default(''),
  RestartCount: z.int().default(0),
  State: z.looseObject({ Running: z.boolean(), Pid: z.int(), StartedAt: z.string() }),
  // Handed back as they are when a container is made anew.
  Config: z.looseObject({ Image: z.string().default(''), Labels: labels }).prefault({}),
  HostConfig: z.looseObject({ NetworkMode: z.string().default('') }).prefault({}),
  NetworkSettings: z.looseObject({
    Networks: z.record(z.string(), endpoint).nullable().default({}),
  }),
});

const imageConfig = z.looseObject({ Config: z.looseObject({}).nullish() });

/** A container in a list. */
export type ContainerSummary = z.infer<typeof summary>;
/** A container looked at closely. */
export type ContainerDetails = z.infer<typeof details>;

/** A stop that waits for the container takes as long as its drain. */
const NO_LIMIT_MS = 0;
const CREATE_TIMEOUT_MS = 60_000;

/** Containers of one engine, over its unix socket. Every call throws STATE_UNAVAILABLE when there is no answer. */
export class EngineApi {
  readonly #socket: string;

  constructor(socket: string) {
    this.#socket = socket;
  }

  /** Every container that runs; with `all` also those that do not. */
  async list(all = false): Promise<readonly ContainerSummary[]> {
    const path = `/containers/json${all ? '?all=1' : ''}`;
    return z.array(summary).parse(await askJson({ socket: this.#socket, path }));
  }

  /** One container. */
  async inspect(id: string): Promise<ContainerDetails> {
    return details.parse(await askJson({ socket: this.#socket, path: `${container(id)}/json` }));
  }

  /** What an image says its containers are; empty when it is gone. */
  async imageConfig(image: string): Promise<Readonly<Record<string, unknown>>> {
    const path = `/images/${encodeURIComponent(image)}/json`;
    const { status, body } = await ask({ socket: this.#socket, path });
    if (status === 404) return {};
    return imageConfig.parse(JSON.parse(body)).Config ?? {};
  }

  /** Makes a container; its id. */
  async create(name: string, body: unknown): Promise<string> {
    const path = `/containers/create?name=${encodeURIComponent(name)}`;
    const said = await this.#post(path, { body, timeoutMs: CREATE_TIMEOUT_MS });
    return z.looseObject({ Id: z.string() }).parse(JSON.parse(said)).Id;
  }

  /** Starts it. */
  async start(id: string): Promise<void> {
    await this.#post(`${container(id)}/start`, { timeoutMs: CREATE_TIMEOUT_MS });
  }

  /** Tells it to end and waits until it has, however long that takes. It is not started again. */
  async stop(id: string): Promise<void> {
    await this.#post(`${container(id)}/stop?t=-1`, { timeoutMs: NO_LIMIT_MS });
  }

  /** Sends a signal. */
  async kill(id: string, signal: NodeJS.Signals): Promise<void> {
    await this.#post(`${container(id)}/kill?signal=${signal}`, {});
  }

  /** Gives it another name. */
  async rename(id: string, name: string): Promise<void> {
    await this.#post(`${container(id)}/rename?name=${encodeURIComponent(name)}`, {});
  }

  /** Removes it, running or not; one that is gone is fine. */
  async remove(id: string): Promise<void> {
    const path = `${container(id)}?force=1`;
    const { status, body } = await ask({ socket: this.#socket, method: 'DELETE', path });
    // 409: somebody else is removing it.
    if (status >= 400 && status !== 404 && status !== 409) throw refused(path, status, body);
  }

  /** Something about some container changed, again and again, until the signal aborts or the stream breaks. */
  async *changes(signal: AbortSignal): AsyncGenerator<void> {
    const filters = encodeURIComponent(JSON.stringify({ type: ['container'] }));
    const question = { socket: this.#socket, path: `/events?filters=${filters}`, signal };
    for await (const event of askLines(question)) {
      // A health check's own commands are events as well, several a second.
      const action = z.looseObject({ Action: z.string().default('') }).parse(event).Action;
      if (!action.startsWith('exec_')) yield;
    }
  }

  async #post(
    path: string,
    { body, timeoutMs }: { readonly body?: unknown; readonly timeoutMs?: number },
  ): Promise<string> {
    const answer = await ask({
      socket: this.#socket,
      method: 'POST',
      path,
      ...(body === undefined ? {} : { body }),
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
    });
    // 304: it is so already.
    if (answer.status >= 400) throw refused(path, answer.status, answer.body);
    return answer.body;
  }
}

function container(id: string): string {
  return `/containers/${encodeURIComponent(id)}`;
}

function refused(path: string, status: number, body: string): MeshError {
  const [question] = path.split('?');
  return new MeshError(
    'STATE_UNAVAILABLE',
    `the engine answered ${status} to ${question}: ${body.trim()}`,
  );
}
