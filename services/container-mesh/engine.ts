/** The part of a Docker engine that a mesh of containers needs. */
import Docker from 'dockerode';
import { asMeshError } from '../../lib/errors/mesh-error.ts';
import { splitLines } from '../local-mesh/unix-http.ts';

/** A container in a list. */
export type ContainerSummary = Docker.ContainerInfo;

/** The details of a container. Its replacement gets `Config` and `HostConfig` unchanged. */
export interface ContainerDetails {
  readonly Id: string;
  readonly Image: string;
  readonly RestartCount: number;
  readonly State: { readonly Running: boolean; readonly Pid: number; readonly StartedAt: string };
  readonly Config: {
    readonly Labels: Readonly<Record<string, string>> | null;
    readonly [more: string]: unknown;
  };
  readonly HostConfig: Docker.HostConfig;
  readonly NetworkSettings: {
    readonly Networks: Readonly<
      Record<
        string,
        Pick<Docker.EndpointSettings, 'IPAMConfig' | 'Aliases' | 'IPAddress' | 'GlobalIPv6Address'>
      >
    >;
  };
}

/** Longest silence of the engine during a request. */
const QUESTION_TIMEOUT_MS = 10_000;
/** Time limit to make or start a container, which waits for disks and networks. */
const CREATE_TIMEOUT_MS = 60_000;
const NOT_FOUND = 404;
/** The container is already in the requested state. */
const NOT_MODIFIED = 304;
/** Another caller is removing the container. */
const CONFLICT = 409;

/** Docker's client at a unix socket; ignores `DOCKER_HOST`. A time limit of 0 means none. */
export function dockerAt(socketPath: string, timeout = QUESTION_TIMEOUT_MS): Docker {
  return new Docker({ socketPath, host: undefined, protocol: 'http', timeout });
}

/** Containers of one engine. Every call throws STATE_UNAVAILABLE with the engine's words when it refuses or is away. */
export class Engine {
  readonly #socket: string;
  readonly #docker: Docker;
  /** Client without a time limit: a stop lasts as long as the drain, and events never end. */
  readonly #patient: Docker;

  constructor(socket: string) {
    this.#socket = socket;
    this.#docker = dockerAt(socket);
    this.#patient = dockerAt(socket, 0);
  }

  /** The running containers; with `all` also the others. */
  list(all = false): Promise<readonly ContainerSummary[]> {
    return this.#said(this.#docker.listContainers({ all }));
  }

  /** One container. */
  inspect(id: string): Promise<ContainerDetails> {
    return this.#said(this.#docker.getContainer(id).inspect());
  }

  /** An image's defaults for its containers; empty when the image is gone. */
  async imageConfig(image: string): Promise<Readonly<Record<string, unknown>>> {
    const seen = await this.#unless([NOT_FOUND], this.#docker.getImage(image).inspect());
    return { ...seen?.Config };
  }

  /** Makes a container; its id. */
  async create(name: string, body: Readonly<Record<string, unknown>>): Promise<string> {
    const abortSignal = AbortSignal.timeout(CREATE_TIMEOUT_MS);
    // Without these two, the client would send the body as the query as well.
    const question = { _query: { name }, _body: body, abortSignal };
    return (await this.#said(this.#patient.createContainer(question))).id;
  }

  /** Starts it. */
  async start(id: string): Promise<void> {
    const abortSignal = AbortSignal.timeout(CREATE_TIMEOUT_MS);
    await this.#unless([NOT_MODIFIED], this.#patient.getContainer(id).start({ abortSignal }));
  }

  /** Stops a container and waits without a time limit. The engine does not restart it. */
  async stop(id: string): Promise<void> {
    await this.#unless([NOT_MODIFIED], this.#patient.getContainer(id).stop({ t: -1 }));
  }

  /** Prevents the engine from restarting a container that ends. */
  async leaveEnded(id: string): Promise<void> {
    await this.#said(this.#docker.getContainer(id).update({ RestartPolicy: { Name: 'no' } }));
  }

  /** Gives it another name. */
  async rename(id: string, name: string): Promise<void> {
    await this.#said(this.#docker.getContainer(id).rename({ name }));
  }

  /** Removes a container, running or not. Succeeds when it is gone. */
  async remove(id: string): Promise<void> {
    const removed = this.#docker.getContainer(id).remove({ force: true });
    await this.#unless([NOT_FOUND, CONFLICT], removed);
  }

  /** Yields for each change of any container, until the signal aborts or the stream breaks. */
  async *changes(signal: AbortSignal): AsyncGenerator<void> {
    const filters = JSON.stringify({ type: ['container'] });
    try {
      const events = await this.#patient.getEvents({ filters, abortSignal: signal });
      for await (const line of splitLines(events)) {
        // Skip the events of health checks' commands, which come several times a second.
        const { Action = '' } = JSON.parse(line) as { Action?: string };
        if (!Action.startsWith('exec_')) yield;
      }
    } catch (error) {
      if (!signal.aborted) throw this.#refused(error);
    }
  }

  async #said<T>(answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      throw this.#refused(error);
    }
  }

  /** Resolves with null for the given refusals. */
  async #unless<T>(statuses: readonly number[], answer: Promise<T>): Promise<T | null> {
    try {
      return await answer;
    } catch (error) {
      const { statusCode } = error as { statusCode?: number };
      if (statusCode !== undefined && statuses.includes(statusCode)) return null;
      throw this.#refused(error);
    }
  }

  #refused(error: unknown): Error {
    return asMeshError(error, 'STATE_UNAVAILABLE', `the engine at ${this.#socket}`);
  }
}
