import { MessageChannel } from 'node:worker_threads';
import type { MessagePort } from 'node:worker_threads';
import type { ControlToThread } from '../../../workers/listener/protocol/control.ts';

/** A thread that takes messages. */
interface Introduced {
  send(message: ControlToThread, transfer: readonly MessagePort[]): void;
}

/** Connects a new listener thread with each of the others by a channel, for connections between their pods. */
export function introduce(newcomer: Introduced, others: Iterable<Introduced>): void {
  for (const other of others) {
    const { port1, port2 } = new MessageChannel();
    newcomer.send({ type: 'neighbour', port: port1 }, [port1]);
    other.send({ type: 'neighbour', port: port2 }, [port2]);
  }
}
