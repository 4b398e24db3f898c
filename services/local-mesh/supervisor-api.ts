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

/** Makes the server of {@link SupervisorView}, for a unix socket. */
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
  // `?role=…&role=…&timeoutMs=…`; answers when all are replaced.
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
