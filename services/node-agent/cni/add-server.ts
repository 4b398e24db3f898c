/** Answers the CNI plugin: an ADD is answered once the pod is enrolled, or once it is known to be outside the mesh. */
import { chmod, mkdir } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';
import { withTimeLimit } from '../../../lib/async/time-limit.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { HttpRefusal, readJson, sendText } from '../../../lib/http/answers.ts';
import { HttpServer } from '../../../lib/http/http-server.ts';
import { RouteTable } from '../../../lib/http/routes.ts';
import { NetnsHandle } from '../../../lib/linux/netns-handle.ts';
import { sameNetns } from '../../../lib/linux/netns.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { PodRecord } from '../../../lib/state/pod-record.ts';
import { eligibility } from '../eligibility.ts';
import type { EligibilityRules } from '../eligibility.ts';
import type { NodeEnrolments } from '../node-enrolments.ts';
import type { PodNetwork, PodSource } from '../pod-source.ts';
import { readAddEvent } from './add-event.ts';
import type { AddEvent } from './add-event.ts';
import { ADD_ANSWER_MS, EVENT_READ_MS, MAX_EVENT_BYTES } from './limits.ts';

/** Settings and ports of an {@link AddServer}. */
export interface AddServerOptions {
  readonly runDir: string;
  /** The host's root as this process sees it; paths of events begin there. */
  readonly hostRoot: string;
  readonly rules: EligibilityRules;
  readonly source: Pick<PodSource, 'find' | 'place'>;
  readonly pods: Pick<NodeEnrolments, 'outcome'>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onAnswer: (status: number) => void;
}

/** The status that says that nobody can tell; the plugin then applies its own setting. */
const UNKNOWN = 503;
/** Only root reaches the sockets of the folder. */
const RUN_DIR_MODE = 0o750;

/** A static pod has another uid in the API than on its node, which is in this annotation. */
const STATIC_POD_UID = 'kubernetes.io/config.hash';

interface Answer {
  readonly status: number;
  readonly text: string;
}

/** Listens on `pluginevent.sock` in the run directory, for istio-cni's plugin and for Weft's. */
export class AddServer {
  readonly #options: AddServerOptions;
  readonly #server: HttpServer;

  constructor(options: AddServerOptions) {
    this.#options = options;
    const routes = new RouteTable();
    routes.route('POST', '/cmdadd', (request, response) => this.#add(request, response));
    this.#server = new HttpServer(routes.handle, {
      name: 'cni',
      log: options.log,
      readsBodies: true,
    });
  }

  /** Throws the file system's errors. */
  async listen(): Promise<void> {
    const { runDir } = this.#options;
    await mkdir(runDir, { recursive: true });
    await chmod(runDir, RUN_DIR_MODE);
    await this.#server.listen({ kind: 'unix', path: join(runDir, 'pluginevent.sock') });
  }

  /** Cuts what waits: the plugin's helper judges those pods. */
  close(): Promise<void> {
    return this.#server.close();
  }

  async #add(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { clock, log, onAnswer } = this.#options;
    const slow = clock.after(EVENT_READ_MS, () => request.destroy());
    let body: unknown;
    try {
      body = await readJson(request, MAX_EVENT_BYTES);
    } catch (error) {
      // After a refusal the rest of the body is not read.
      response.setHeader('connection', 'close');
      onAnswer(error instanceof HttpRefusal ? error.status : 400);
      throw error;
    } finally {
      slow.cancel();
    }
    const startedMs = clock.monotonic();
    const { status, text } = await this.#answer(body);
    onAnswer(status);
    const facts = { status, text, ms: Math.round(clock.monotonic() - startedMs) };
    log[status === 200 ? 'info' : 'warn'](facts, 'cni.pod-answered');
    sendText(response, status, `${text}\n`);
  }

  async #answer(body: unknown): Promise<Answer> {
    let event: AddEvent;
    try {
      event = readAddEvent(body);
    } catch (error) {
      return { status: 400, text: errorText(error) };
    }
    const pod = `pod ${event.namespace}/${event.name}`;
    try {
      return await withTimeLimit(this.#options.clock, this.#judge(event), {
        limitMs: ADD_ANSWER_MS,
        what: `${pod} is not enrolled`,
        release: () => undefined,
      });
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      return { status: 500, text: error.message };
    }
  }

  async #judge(event: AddEvent): Promise<Answer> {
    const { source, pods, rules, hostRoot } = this.#options;
    const pod = `pod ${event.namespace}/${event.name}`;
    const network = { netns: `${hostRoot}${event.netns}`, addresses: event.addresses };
    let record: PodRecord | null;
    try {
      record = await source.find(event.namespace, event.name, network);
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      return { status: UNKNOWN, text: `${pod} cannot be looked up: ${error.message}` };
    }
    if (record === null) return { status: 500, text: `${pod} is not known to the node agent` };
    if (
      event.uid !== null &&
      ![record.uid, record.annotations[STATIC_POD_UID]].includes(event.uid)
    ) {
      return { status: 500, text: `${pod} has the uid ${record.uid}, not ${event.uid}` };
    }
    const { enrol, reason } = eligibility(record, rules);
    if (!enrol) {
      const status = event.agentDecides ? 200 : 500;
      return { status, text: `${pod} is outside the mesh: ${reason}` };
    }
    const fault = netnsFault(network, record);
    if (fault !== null) return { status: 400, text: `${pod}: ${fault}` };
    source.place(record.uid, network);
    const outcome = await pods.outcome(record.uid);
    return outcome.state === 'enabled' && outcome.reason === null
      ? { status: 200, text: `${pod} is enrolled: ${reason}` }
      : { status: 500, text: `${pod} is not enrolled: ${outcome.reason ?? outcome.state}` };
  }
}

/** Why the event's namespace is not that of the pod; null when it is. */
function netnsFault(told: PodNetwork, record: PodRecord): string | null {
  const handles: NetnsHandle[] = [];
  try {
    for (const path of [told.netns, record.netns ?? told.netns]) {
      handles.push(NetnsHandle.open(path));
    }
    const [first, second] = handles.map(({ identity }) => identity);
    if (first === undefined || second === undefined || sameNetns(first, second)) return null;
    return `${told.netns} is another network namespace than that of the pod, ${record.netns}`;
  } catch (error) {
    return `no network namespace: ${errorText(error)}`;
  } finally {
    for (const handle of handles) handle.release();
  }
}
