/** The supervisor's HTTP API on a unix socket, and the shapes it answers with. */
import { chmod, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { once } from 'node:events';
import { sendJson, sendText } from '../../lib/actor/admin-routes.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { WaypointBypass } from '../../lib/state/waypoint-bypass.ts';
import type { PodPhase } from './manifest-api.ts';
import type { ProcessState, ProcessStatus } from './managed-process.ts';
import type { Upgraded } from './role-processes.ts';

/** Answer of `GET /status`, and what `weft status -o json` prints. */
export interface MeshStatus {
  readonly mesh: string;
  readonly runDirectory: string;
  readonly supervisor: { readonly pid: number };
  readonly nodes: readonly {
    readonly name: string;
    readonly netns: string;
    readonly addresses: readonly string[];
    readonly pods: number;
  }[];
  readonly actors: readonly ProcessStatus[];
  readonly redis: {
    readonly pid: number | null;
    readonly state: ProcessState;
    readonly restarts: number;
    readonly socket: string;
  };
  /** What proxies do with traffic that went around a waypoint; null where that is each container's own setting. */
  readonly waypointBypass: WaypointBypass | null;
  /** Whether every process was started and the manifests are applied. */
  readonly started: boolean;
  readonly ready: boolean;
  /** What `ready` waits for. */
  readonly waiting: readonly string[];
}

/** One pod in the answer of `GET /pods`. */
export interface PodLine {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  readonly node: string;
  readonly ip: string;
  readonly ips: readonly string[];
  readonly netns: string;
  readonly serviceAccount: string;
  readonly phase: PodPhase;
  /** Meant to be in the mesh, by its labels. */
  readonly ambient: boolean;
  /** Command lines that enter it, where that is not by the namespaces of the local runtime. */
  readonly enter?: {
    /** Where its application runs. */
    readonly application: readonly string[];
    /** Where its network is held. */
    readonly network: readonly string[];
  };
}

/** What the API speaks for. */
export interface SupervisorView {
  status(): MeshStatus | Promise<MeshStatus>;
  pods(): readonly PodLine[];
  /** Throws where the mesh is taken down otherwise. */
  down(): void;
  /** Replaces roles, one after another. */
  upgrade(roles: readonly string[], timeoutMs: number): Promise<readonly Upgraded[]>;
}

/** A new process that is not ready by then is given up. */
export const DEFAULT_UPGRADE_MS = 60_000;

/** Serves {@link SupervisorView}. */
export class SupervisorApi {
  readonly #view: SupervisorView;
  readonly #server: Server;

  constructor(view: SupervisorView) {
    this.#view = view;
    this.#server = createServer((request, response) => {
      this.#handle(request, response).catch((error: unknown) => {
        const conflict = error instanceof MeshError && error.code === 'STATE_CONFLICT';
        sendText(response, conflict ? 409 : 503, `${errorText(error)}\n`);
      });
    });
  }

  /** Listens on the socket, replacing a stale one. */
  async listen(path: string): Promise<void> {
    await rm(path, { force: true });
    this.#server.listen(path);
    await once(this.#server, 'listening');
    // Whoever may connect may take the mesh down, whatever the umask says.
    await chmod(path, 0o600);
  }

  /** Stops listening. Idempotent. */
  async close(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const line = `${request.method} ${request.url}`;
    if (line === 'GET /status') sendJson(response, 200, await this.#view.status());
    else if (line === 'GET /pods') sendJson(response, 200, this.#view.pods());
    else if (line === 'POST /down') {
      this.#view.down();
      sendText(response, 202, 'going down\n');
    } else if (line.startsWith('POST /upgrade?')) await this.#upgrade(request, response);
    else sendText(response, 404, `no such path: ${line}\n`);
  }

  /** `?role=…&role=…&timeoutMs=…`; answers when all are replaced. */
  async #upgrade(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { searchParams } = new URL(request.url ?? '/', 'http://localhost');
    const timeoutMs = Number(searchParams.get('timeoutMs') ?? DEFAULT_UPGRADE_MS);
    const roles = searchParams.getAll('role');
    sendJson(response, 200, await this.#view.upgrade(roles, timeoutMs));
  }
}
