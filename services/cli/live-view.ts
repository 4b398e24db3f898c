/** The final view of `weft up`: nodes, actors, pods and connections, redrawn every second. */
import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import {
  askConnections,
  askPods,
  askStatus,
  enrolledPods,
  localServers,
} from '../local-mesh/mesh-client.ts';
import type { MeshPaths } from '../local-mesh/mesh-paths.ts';
import { statusLines } from './status-lines.ts';
import type { MeshStatus, PodLine } from '../local-mesh/supervisor-api.ts';
import { textTable } from './text-table.ts';
import type { ConnectionRecord } from '../../workers/listener/protocol/connections.ts';

const REDRAW_MS = 1_000;
/** Most lines of a list; a longer one is cut, with a line that says so. */
const MAX_ROWS = 20;
const UNKNOWN_ROWS = 24;
const HOME_AND_CLEAR = '\u001B[H\u001B[J';
const ENTER_ALTERNATE = '\u001B[?1049h\u001B[?25l';
const LEAVE_ALTERNATE = '\u001B[?25h\u001B[?1049l';

/** The data of one drawing. */
export interface ViewContent {
  readonly status: MeshStatus;
  readonly pods: readonly PodLine[];
  readonly enrolled: ReadonlySet<string>;
  readonly connections: readonly ConnectionRecord[];
}

/** Draws on a terminal. Elsewhere prints everything once, and again when something other than bytes changed. */
export class LiveView {
  readonly #paths: MeshPaths;
  readonly #out: NodeJS.WriteStream;
  readonly #clock: Clock;
  readonly #terminal: boolean;
  #timer: Timer | null = null;
  #drawing: Promise<void> = Promise.resolve();
  #last = '';
  #busy = false;

  constructor(paths: MeshPaths, deps: { readonly out: NodeJS.WriteStream; readonly clock: Clock }) {
    this.#paths = paths;
    this.#out = deps.out;
    this.#clock = deps.clock;
    this.#terminal = deps.out.isTTY;
  }

  /** Begins to draw. */
  start(): void {
    if (this.#terminal) this.#out.write(ENTER_ALTERNATE);
    this.#tick();
    this.#timer = this.#clock.every(REDRAW_MS, () => this.#tick());
  }

  /** Stops drawing and restores the terminal. Idempotent; allowed without a start. */
  async stop(): Promise<void> {
    if (this.#timer === null) return;
    this.#timer.cancel();
    this.#timer = null;
    await this.#drawing;
    if (this.#terminal) this.#out.write(LEAVE_ALTERNATE);
  }

  #tick(): void {
    if (this.#busy) return;
    this.#busy = true;
    this.#drawing = this.#draw().finally(() => (this.#busy = false));
  }

  async #draw(): Promise<void> {
    let lines: string[];
    try {
      lines = viewLines(await this.#gather());
    } catch (error) {
      lines = [`the mesh does not answer: ${errorText(error)}`];
    }
    if (this.#timer === null) return;
    if (this.#terminal) {
      // A terminal of unknown size reports 0.
      const height = Math.max(1, (this.#out.rows || UNKNOWN_ROWS) - 2);
      const text = [...lines.slice(0, height), 'Ctrl-C takes the mesh down'].join('\n');
      this.#out.write(`${HOME_AND_CLEAR}${text}`);
      return;
    }
    // Times and bytes always change; a log does not need them.
    const news = lines.join('\n').replaceAll(/\s+(?:\d+h\d+m|(?:\d+m)?\d+s|[\d.]+ [KMG]?i?B)/g, '');
    if (news === this.#last) return;
    this.#last = news;
    this.#out.write(`${lines.join('\n')}\n\n`);
  }

  async #gather(): Promise<ViewContent> {
    const status = await askStatus(this.#paths);
    const nodes = status.nodes.map((node) => node.name);
    const servers = localServers(this.#paths);
    const lists = await Promise.allSettled(nodes.map((node) => askConnections(servers, node)));
    return {
      status,
      pods: await askPods(this.#paths),
      enrolled: await enrolledPods(this.#paths, nodes),
      connections: lists.flatMap((list) => (list.status === 'fulfilled' ? list.value : [])),
    };
  }
}

/** One drawing as lines of text. */
export function viewLines(content: ViewContent): string[] {
  const { status, pods, enrolled, connections } = content;
  return [
    ...statusLines(status),
    '',
    ...textTable(['POD', 'NODE', 'IP', 'IDENTITY'], cut(pods.map((pod) => podRow(pod, enrolled)))),
    '',
    ...(connections.length === 0
      ? ['no open connections']
      : textTable(
          ['FROM', 'TO', 'SIDE', 'SENT', 'RECEIVED', 'SECURITY'],
          cut(connections.map(connectionRow)),
        )),
  ];
}

function podRow(pod: PodLine, enrolled: ReadonlySet<string>): string[] {
  const identity = enrolled.has(pod.uid)
    ? `ns/${pod.namespace}/sa/${pod.serviceAccount}`
    : pod.ambient
      ? 'not enrolled yet'
      : 'outside the mesh';
  return [`${pod.namespace}/${pod.name}`, pod.node, pod.ip, identity];
}

function connectionRow(record: ConnectionRecord): string[] {
  return [
    record.sourceWorkload ?? record.source,
    record.destinationService ?? record.destinationWorkload ?? record.destination,
    record.direction,
    bytes(record.bytesSent),
    bytes(record.bytesReceived),
    record.protocol === 'HBONE' ? 'mTLS' : 'plaintext',
  ];
}

function cut(rows: readonly string[][]): readonly string[][] {
  if (rows.length <= MAX_ROWS) return rows;
  return [...rows.slice(0, MAX_ROWS), [`… and ${rows.length - MAX_ROWS} more`]];
}

/** `512 B`, `1.5 KiB`, `3.2 GiB`. */
export function bytes(count: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let value = count;
  let unit = 0;
  while (value >= 1_024 && unit < units.length - 1) {
    value /= 1_024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}
