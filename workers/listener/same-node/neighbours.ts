import { MessageChannel } from 'node:worker_threads';
import type { MessagePort } from 'node:worker_threads';
import type { Clock } from '../../../lib/clock/clock.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { PodContext } from '../thread-context.ts';
import { serveArrival } from './arrival.ts';
import { Asked } from './server.ts';
import type { Arrival } from './server.ts';
import { Asker } from './client.ts';
import { podName } from './messages.ts';
import type { NeighbourMessage, SameNodeRequest } from './messages.ts';

/** One port to another thread, and what that thread serves. */
interface Neighbour {
  readonly port: MessagePort;
  readonly asker: Asker;
  readonly asked: Asked;
  readonly pods: Set<string>;
}

/**
 * The listener threads of this process as one of them sees them, itself among them: which serves which pod, and how to ask
 * it for a connection.
 */
export class Neighbours {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #own = new Map<string, PodContext>();
  readonly #neighbours = new Set<Neighbour>();

  constructor(deps: { readonly clock: Clock; readonly log: Logger }) {
    this.#clock = deps.clock;
    this.#log = deps.log;
  }

  /** Makes the thread's own pods reachable by the same way as those of others. */
  addSelf(): void {
    const { port1, port2 } = new MessageChannel();
    this.add(port1);
    this.add(port2);
  }

  /** Takes a port to another thread, which does the same with its other end. */
  add(port: MessagePort): void {
    const send = (message: NeighbourMessage): void => port.postMessage(message);
    const neighbour: Neighbour = {
      port,
      asker: new Asker(send, this.#clock),
      asked: new Asked(send, (arrival, request) => this.#serve(arrival, request)),
      pods: new Set(),
    };
    this.#neighbours.add(neighbour);
    port.on('message', (message: NeighbourMessage) => receive(neighbour, message));
    port.on('close', () => {
      this.#neighbours.delete(neighbour);
      neighbour.asker.close();
      neighbour.asked.close();
    });
    // The thread lives for its pods, not for its neighbours.
    port.unref();
    send({ type: 'serving', pods: [...this.#own.keys()] });
  }

  /** A thread that serves the pod, named by {@link podName}; the own one before others. */
  find(pod: string): Asker | null {
    for (const { pods, asker } of this.#neighbours) if (pods.has(pod)) return asker;
    return null;
  }

  /** Announces that the pod listens on this thread. */
  serve(pod: PodContext): void {
    const name = podName(pod.pod);
    this.#own.set(name, pod);
    this.#tell({ type: 'serving', pods: [name] });
  }

  /** Withdraws the pod; it keeps its connections. Has no effect for a pod that is not served. */
  withdraw(pod: PodContext): void {
    const name = podName(pod.pod);
    if (this.#own.get(name) !== pod) return;
    this.#own.delete(name);
    this.#tell({ type: 'gone', pod: name });
  }

  #tell(message: NeighbourMessage): void {
    for (const { port } of this.#neighbours) port.postMessage(message);
  }

  async #serve(arrival: Arrival, request: SameNodeRequest): Promise<void> {
    const pod = this.#own.get(request.pod);
    if (pod === undefined) {
      arrival.decline('the pod is not served here');
      return;
    }
    try {
      await serveArrival(pod, arrival, request);
    } catch (error) {
      this.#log.error({ podUid: pod.pod.uid, error: errorText(error) }, 'same-node.failed');
      throw error;
    }
  }
}

function receive({ asker, asked, pods }: Neighbour, message: NeighbourMessage): void {
  switch (message.type) {
    case 'serving':
      for (const pod of message.pods) pods.add(pod);
      break;
    case 'gone':
      pods.delete(message.pod);
      break;
    case 'connect':
    case 'cancel':
    case 'joined':
    case 'dropped':
    case 'ended':
      asked.receive(message);
      break;
    case 'answer':
    case 'revoked':
    case 'closed':
    case 'refuse':
    case 'fail':
    case 'decline':
      asker.receive(message);
      break;
  }
}
