/** Answers the CNI plugin: an ADD is answered once the pod is enrolled, or once it is known to be outside the mesh. */
import { chmod, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { NetnsHandle } from '../../../lib/linux/netns-handle.ts';
import { sameNetns } from '../../../lib/linux/netns.ts';
import type { PodRecord } from '../../../lib/state/pod-record.ts';
import { eligibility } from '../eligibility.ts';
import type { EligibilityRules } from '../eligibility.ts';
import type { NodeEnrolments } from '../node-enrolments.ts';
import type { PodNetwork, PodSource } from '../pod-source.ts';
import { StartServer, enrolled } from '../start-server.ts';
import type { StartAnswer, StartServerOptions } from '../start-server.ts';
import { readAddEvent } from './add-event.ts';
import type { AddEvent } from './add-event.ts';

/** Settings and ports of an {@link AddServer}. */
export interface AddServerOptions extends Pick<StartServerOptions, 'clock' | 'log' | 'onAnswer'> {
  readonly runDir: string;
  /** The host's root as this process sees it; paths of events begin there. */
  readonly hostRoot: string;
  readonly rules: EligibilityRules;
  readonly source: Pick<PodSource, 'find' | 'place'>;
  readonly pods: Pick<NodeEnrolments, 'outcome'>;
}

/** The status that says that nobody can tell; the plugin then applies its own setting. */
const UNKNOWN = 503;
/** Only root reaches the sockets of the folder. */
const RUN_DIR_MODE = 0o750;

/** A static pod has another uid in the API than on its node, which is in this annotation. */
const STATIC_POD_UID = 'kubernetes.io/config.hash';

/** Listens on `pluginevent.sock` in the run directory, for istio-cni's plugin and for Weft's. */
export class AddServer {
  readonly #options: AddServerOptions;
  readonly #server: StartServer;

  constructor(options: AddServerOptions) {
    this.#options = options;
    this.#server = new StartServer({
      ...options,
      socket: join(options.runDir, 'pluginevent.sock'),
      route: '/cmdadd',
      name: 'cni',
      read: (body) => {
        const event = readAddEvent(body);
        return {
          pod: `pod ${event.namespace}/${event.name}`,
          judge: () => this.#judge(event),
        };
      },
    });
  }

  /** Throws the file system's errors. */
  async listen(): Promise<void> {
    const { runDir } = this.#options;
    await mkdir(runDir, { recursive: true });
    await chmod(runDir, RUN_DIR_MODE);
    await this.#server.listen();
  }

  /** Cuts what waits: the plugin's helper judges those pods. */
  close(): Promise<void> {
    return this.#server.close();
  }

  async #judge(event: AddEvent): Promise<StartAnswer> {
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
    return enrolled(pods, record.uid, { pod, reason });
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
