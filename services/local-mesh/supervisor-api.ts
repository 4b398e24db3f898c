/** The supervisor's HTTP API on a unix socket, and the shapes it answers with. */
import type { ServerResponse } from 'node:http';
import { HttpRefusal, sendJson, sendText } from '../../lib/http/answers.ts';
import { HttpServer } from '../../lib/http/http-server.ts';
import { RouteTable } from '../../lib/http/routes.ts';
import type { Logger } from '../../lib/log/logger.ts';
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
  /** How proxies treat traffic that went around a waypoint; null while the mesh runs none. */
  readonly waypointBypass: WaypointBypass | null;
  /** Whether every process was started and the manifests were applied. */
  readonly started: boolean;
  readonly ready: boolean;
  /** Conditions that `ready` waits for. */
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
  /** Whether its labels put it into the mesh. */
  readonly ambient: boolean;
  /** Command lines that enter a pod that is a container; absent for pods of the local runtime. */
  readonly enter?: {
    /** Enters the container of its application. */
    readonly application: readonly string[];
    /** Enters the container that holds its network. */
    readonly network: readonly string[];
  };
}

/** The mesh behind the API. */
export interface SupervisorView {
  status(): MeshStatus | Promise<MeshStatus>;
  pods(): readonly PodLine[];
  /** Takes the mesh down. Throws STATE_CONFLICT for a mesh of containers. */
  down(): void;
  /** Replaces roles, one after another. */
  upgrade(roles: readonly string[], timeoutMs: number): Promise<readonly Upgraded[]>;
}

/** Time limit for a new process to become ready. */
export const DEFAULT_UPGRADE_MS = 60_000;

/** Makes the server for a {@link SupervisorView}; the caller listens on a unix socket. */
export function supervisorServer(view: SupervisorView, log: Logger): HttpServer {
  const routes = new RouteTable();
  routes.route('GET', '/status', async (_request, response) =>
    sendJson(response, 200, await view.status()),
  );
  routes.route('GET', '/pods', (_request, response) => sendJson(response, 200, view.pods()));
  routes.route('POST', '/down', (_request, response) => {
    view.down();
    sendText(response, 202, 'going down\n');
  });
  // `?role=…&role=…&timeoutMs=…`; answers when all roles are replaced.
  routes.route('POST', '/upgrade', async (_request, response, { searchParams }) => {
    const timeoutMs = Number(searchParams.get('timeoutMs') ?? DEFAULT_UPGRADE_MS);
    sendJson(response, 200, await view.upgrade(searchParams.getAll('role'), timeoutMs));
  });
  return new HttpServer(routes.handle, { name: 'supervisor', log, refuse });
}

function refuse(response: ServerResponse, error: unknown): void {
  const conflict = error instanceof MeshError && error.code === 'STATE_CONFLICT';
  const status = error instanceof HttpRefusal ? error.status : conflict ? 409 : 503;
  sendText(response, status, `${errorText(error)}\n`);
}
