import { MessageChannel } from 'node:worker_threads';
import type { ExecutionContext } from 'ava';
import { closeFd, openNetns } from '../../lib/linux/netns.ts';
import { carriedEngine } from '../../lib/hbone/carried/engine.ts';
import { Pod } from '../../workers/listener/pod.ts';
import type { ControlFromThread } from '../../workers/listener/protocol/control.ts';
import type { StateResponse } from '../../workers/listener/protocol/state.ts';
import { ListenerThread } from '../../workers/listener/thread.ts';
import { listenerSettings } from './listener-kit.ts';

/** Starts a pod on a listener thread that is this thread. Gives access to its messages, its log and the mesh state's answers. */
export async function startPod(
  t: ExecutionContext,
  options: {
    /** The pod's port for tunnels; 0, the default, picks a free one. */
    readonly inboundHbone?: number;
    /** The network namespace of a workload. Without it the pod is the proxy's own, in this process's namespace. */
    readonly netns?: string;
  } = {},
) {
  const [control, state] = [new MessageChannel(), new MessageChannel()];
  const lines: string[] = [];
  const said: ControlFromThread[] = [];
  control.port1.on('message', (message: ControlFromThread) => said.push(message));
  const ports = { ...listenerSettings.ports, inboundHbone: options.inboundHbone ?? 0 };
  const { context } = new ListenerThread(
    {
      thread: 0,
      settings: { ...listenerSettings, ports },
      control: control.port2,
      state: state.port2,
      revocations: null,
      budget: null,
    },
    carriedEngine,
    { write: (line) => lines.push(line), gather: () => {} },
  );
  const netnsFd = openNetns(options.netns ?? '/proc/self/ns/net');
  const info = { uid: 'uid-1', name: 'client', namespace: 'demo', serviceAccount: 'client' };
  const task = { pod: { ...info, own: options.netns === undefined }, netnsFd };
  const pod = new Pod(task, context);
  t.teardown(async () => {
    await pod.stop('immediate', 0);
    control.port1.close();
    state.port1.close();
    closeFd(netnsFd);
  });
  const tell = (message: StateResponse): void => state.port1.postMessage(message);
  return { pod, context, said, lines, task, tell };
}
