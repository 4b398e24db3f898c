/** Answers the CNI plugin: an ADD is answered once the pod is enrolled, or once it is known to be outside the mesh. */
import { chmod, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { NetnsHandle } from '../../../lib/linux/netns-handle.ts';
import { sameNetns } from '../../../lib/linux/netns.ts';
import type { PodRecord } from '../../../lib/state/pod-record.ts';
import { eligibility } from '../eligibility.ts';
import type { EligibilityRules } from '../eligibility.ts';
import { holdsAddress } from '../netns/pod-addresses.ts';
import { runtimeUids } from '../netns/runtime-uids.ts';
import type { NodeEnrolments } from '../node-enrolments.ts';
import type { PodNetwork, PodSource } from '../pod-source.ts';
import { StartServer, enrolled } from '../start-server.ts';
import type { StartAnswer, StartServerOptions } from '../start-server.ts';
import { readAddEvent } from './add-event.ts';
import type { AddEvent } from './add-event.ts';
import { LOOK_UP_MS } from './limits.ts';

/** Settings and ports of an {@link AddServer}. */
export interface AddServerOptions extends Pick<StartServerOptions, 'clock' | 'log' | 'onAnswer'> {
  readonly runDir: string;
  /** The host's root as this process sees it; paths of events begin there. */
  readonly hostRoot: string;
  readonly rules: EligibilityRules;
  readonly source: Pick<PodSource, 'find' | 'place'>;
  readonly pods: Pick<NodeEnrolments, 'outcome' | 'holderOf'>;
}

/** The status that says that nobody can tell; the plugin then applies its own setting. */
const UNKNOWN = 503;
/** Only root reaches the sockets of the folder. */
const RUN_DIR_MODE = 0o750;

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
      record = await this.#lookUp(event, network);
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      return { status: UNKNOWN, text: `${pod} cannot be looked up: ${error.message}` };
    }
    if (record === null) return { status: 500, text: `${pod} is not known to the node agent` };
    if (event.uid !== null && !runtimeUids(record).includes(event.uid)) {
      return { status: 500, text: `${pod} has the uid ${record.uid}, not ${event.uid}` };
    }
    const { enrol, reason } = eligibility(record, rules);
    if (!enrol) {
      const status = event.agentDecides ? 200 : 500;
      return { status, text: `${pod} is outside the mesh: ${reason}` };
    }
    const fault = netnsFault(network, record, pods);
    if (fault !== null) return { status: 400, text: `${pod}: ${fault}` };
    source.place(record.uid, network);
    return enrolled(pods, record.uid, { pod, reason });
  }

  async #lookUp(
    { namespace, name, uid }: AddEvent,
    network: PodNetwork,
  ): Promise<PodRecord | null> {
    const { source, clock } = this.#options;
    const ending = new AbortController();
    const limit = clock.after(LOOK_UP_MS, () =>
      ending.abort(new MeshError('UPSTREAM_TIMEOUT', `no answer within ${LOOK_UP_MS} ms`)),
    );
    try {
      const options = { fresh: uid === null, signal: ending.signal };
      return await source.find(namespace, name, network, options);
    } finally {
      limit.cancel();
    }
  }
}

/** Why the event's namespace is not that of the pod; null when it is. */
function netnsFault(
  told: PodNetwork,
  record: PodRecord,
  pods: Pick<NodeEnrolments, 'holderOf'>,
): string | null {
  const handles: NetnsHandle[] = [];
  try {
    for (const path of [told.netns, record.netns ?? told.netns]) {
      handles.push(NetnsHandle.open(path));
    }
    const [first, second] = handles;
    if (first === undefined || second === undefined) return null;
    if (!sameNetns(first.identity, second.identity)) {
      return `${told.netns} is another network namespace than that of the pod, ${record.netns}`;
    }
    const { addresses } = told;
    if (addresses.length > 0 && !holdsAddress(first, addresses)) {
      return `network namespace ${told.netns} has none of the addresses ${addresses.join(', ')}`;
    }
    const holder = pods.holderOf(first.identity, record.uid);
    if (holder === null) return null;
    return `${told.netns} is the network namespace of pod ${holder.namespace}/${holder.name}`;
  } catch (error) {
    return `no network namespace: ${errorText(error)}`;
  } finally {
    for (const handle of handles) handle.release();
  }
}
