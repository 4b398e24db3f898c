import { MessageChannel } from 'node:worker_threads';
import type { ExecutionContext } from 'ava';
import { Neighbours } from '../../workers/listener/same-node/neighbours.ts';
import type { NeighbourMessage } from '../../workers/listener/same-node/messages.ts';
import { Pod } from '../../workers/listener/pod.ts';
import { createNetns } from '../support/netns-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { startPod } from '../support/start-pod.ts';
import { until } from '../support/until.ts';

/** Prepares a pod that has not started, and records its thread's messages to another thread. */
async function preparePod(t: ExecutionContext) {
  const netns = await createNetns(t, 'pod');
  const { pod: unused, context, task } = await startPod(t, { netns: netns.path });
  await unused.stop('immediate', 0);
  const neighbours = new Neighbours({ clock: context.clock, log: context.log });
  const { port1, port2 } = new MessageChannel();
  const told: NeighbourMessage[] = [];
  port2.on('message', (message: NeighbourMessage) => told.push(message));
  t.teardown(() => port2.close());
  neighbours.add(port1);
  const pod = new Pod(task, { ...context, neighbours });
  t.teardown(() => pod.stop('immediate', 0));
  /** Returns all messages so far, in order. */
  const toldSoFar = async (): Promise<NeighbourMessage[]> => {
    const last = new Pod({ ...task, pod: { ...task.pod, name: 'last' } }, context);
    t.teardown(() => last.stop('immediate', 0));
    neighbours.serve(last);
    const isLast = (message: NeighbourMessage): boolean =>
      message.type === 'serving' && message.pods.includes('demo/last/client');
    await until(() => told.some(isLast), { what: 'the last word' });
    return told.filter((message) => !isLast(message));
  };
  return { pod, toldSoFar };
}

function listeners(): number {
  return process.getActiveResourcesInfo().filter((kind) => kind === 'TCPServerWrap').length;
}

const FACTS = {
  direction: 'outbound',
  protocol: 'TCP',
  source: { ip: '10.9.0.2', port: 1 },
  destination: { ip: '10.9.0.3', port: 2 },
  actualDestination: { ip: '10.9.0.3', port: 2 },
  hboneAddress: null,
  sourceWorkload: null,
  sourceBaggage: null,
  destinationWorkload: null,
  destinationService: null,
  sourceIdentity: null,
} as const;

test('a pod that ended while it started is known to no thread', async (t) => {
  const { pod, toldSoFar } = await preparePod(t);
  const started = pod.start();
  await pod.stop('immediate', 0);
  await started;
  t.deepEqual(await toldSoFar(), [{ type: 'serving', pods: [] }]);
});

test('a pod that drains while it starts opens no listener', async (t) => {
  const { pod, toldSoFar } = await preparePod(t);
  const before = listeners();
  const connection = pod.open(FACTS);
  const started = pod.start();
  const stopped = pod.stop('graceful', 60_000);
  await started;
  t.is(listeners(), before, 'its connection lives, and nothing is listened on');
  pod.close(connection, null);
  await stopped;
  t.deepEqual(await toldSoFar(), [{ type: 'serving', pods: [] }]);
});
