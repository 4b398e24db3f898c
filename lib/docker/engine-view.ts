/** Reads the containers of a Docker engine, and starts them. */
import Docker from 'dockerode';
import { asMeshError } from '../errors/mesh-error.ts';
import { splitLines } from '../http/split-lines.ts';

/** A container in a list. */
export type ContainerSummary = Docker.ContainerInfo;

/** The details of a container. Its replacement gets `Config` and `HostConfig` unchanged. */
export interface ContainerDetails {
  readonly Id: string;
  /** RFC 3339, to the nanosecond. */
  readonly Created: string;
  readonly Image: string;
  readonly RestartCount: number;
  readonly State: {
    readonly Running: boolean;
    readonly Pid: number;
    readonly StartedAt: string;
    /** Why the last start failed; empty when it did not. */
    readonly Error: string;
  };
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
export const CREATE_TIMEOUT_MS = 60_000;
/** The container is already in the requested state. */
export const NOT_MODIFIED = 304;
/** The status for a container or an image that does not exist. */
export const NOT_FOUND = 404;

/** Docker's client at a unix socket; ignores `DOCKER_HOST`. A time limit of 0 means none. */
export function dockerAt(socketPath: string, timeout = QUESTION_TIMEOUT_MS): Docker {
  return new Docker({ socketPath, host: undefined, protocol: 'http', timeout });
}

/** One engine. Every call throws STATE_UNAVAILABLE with the engine's words when it refuses or is away. */
export class EngineView {
  protected readonly docker: Docker;
  /** Client without a time limit: a stop lasts as long as the drain, and events never end. */
  protected readonly patient: Docker;
  readonly #socket: string;

  constructor(socket: string) {
    this.#socket = socket;
    this.docker = dockerAt(socket);
    this.patient = dockerAt(socket, 0);
  }

  /** The running containers; with `all` also the others. */
  list(all = false): Promise<readonly ContainerSummary[]> {
    return this.said(this.docker.listContainers({ all }));
  }

  /** One container. */
  inspect(id: string): Promise<ContainerDetails> {
    return this.said(this.docker.getContainer(id).inspect());
  }

  /** One container; null when it is gone. */
  inspectIfPresent(id: string): Promise<ContainerDetails | null> {
    return this.unless([NOT_FOUND], this.docker.getContainer(id).inspect());
  }

  /** Starts a container. Rejects after {@link CREATE_TIMEOUT_MS}, and when the signal aborts. */
  async start(id: string, signal?: AbortSignal): Promise<void> {
    const limit = AbortSignal.timeout(CREATE_TIMEOUT_MS);
    const abortSignal = signal === undefined ? limit : AbortSignal.any([limit, signal]);
    await this.unless([NOT_MODIFIED], this.patient.getContainer(id).start({ abortSignal }));
  }

  /** Yields for each change of any container, until the signal aborts or the stream breaks. */
  async *changes(signal: AbortSignal): AsyncGenerator<void> {
    const filters = JSON.stringify({ type: ['container'] });
    try {
      const events = await this.patient.getEvents({ filters, abortSignal: signal });
      for await (const line of splitLines(events)) {
        // Skip the events of health checks' commands, which come several times a second.
        const { Action = '' } = JSON.parse(line) as { Action?: string };
        if (!Action.startsWith('exec_')) yield;
      }
    } catch (error) {
      if (!signal.aborted) throw this.#refusal(error);
    }
  }

  /** Resolves with the engine's answer. */
  protected async said<T>(answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      throw this.#refusal(error);
    }
  }

  /** Resolves with null for the given refusals. */
  protected async unless<T>(statuses: readonly number[], answer: Promise<T>): Promise<T | null> {
    try {
      return await answer;
    } catch (error) {
      const { statusCode } = error as { statusCode?: number };
      if (statusCode !== undefined && statuses.includes(statusCode)) return null;
      throw this.#refusal(error);
    }
  }

  #refusal(error: unknown): Error {
    return asMeshError(error, 'STATE_UNAVAILABLE', `the engine at ${this.#socket}`);
  }
}
