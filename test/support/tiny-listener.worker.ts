/**
 * A listener thread reduced to its contract: it listens on a loopback port for each pod, answers reports and
 * obeys stops. Certain pod names make it misbehave: `refused` cannot start; a connection to `crash` kills the
 * thread; a connection to `quits` ends its task.
 */
import { createServer } from 'node:net';
import { SeriesWriter } from '../../lib/metrics/series-memory.ts';
import { connectionRecord } from './records.ts';
import type { Server, Socket } from 'node:net';
import type {
  ControlFromThread,
  ControlToThread,
  PodTask,
  ThreadAttachment,
} from '../../workers/listener/protocol/control.ts';
import type { StateRequest } from '../../workers/listener/protocol/state.ts';

interface Served {
  readonly server: Server;
  readonly sockets: Set<Socket>;
  readonly end: () => void;
}

/** Node fires longer timers at once. */
const LONGEST_TIMER_MS = 2_147_483_647;

let attachment: ThreadAttachment | null = null;
const series = new SeriesWriter((message) => send({ type: 'series', message }));
const pods = new Map<string, Served>();

function send(message: ControlFromThread): void {
  attachment?.control.postMessage(message);
}

function stop(uid: string): void {
  const pod = pods.get(uid);
  if (pod === undefined) return;
  pods.delete(uid);
  for (const socket of pod.sockets) socket.destroy();
  pod.server.close(() => pod.end());
}

function obey(message: ControlToThread): void {
  switch (message.type) {
    case 'pod.stop': {
      const pod = pods.get(message.uid);
      if (message.mode === 'immediate' || pod === undefined) stop(message.uid);
      else {
        pod.server.close(() => stop(message.uid));
        const deadlineMs = Math.min(message.deadlineMs, LONGEST_TIMER_MS);
        setTimeout(() => stop(message.uid), deadlineMs).unref();
      }
      break;
    }
    case 'report':
      if (message.what === 'metrics') {
        series.publish([
          {
            name: 'tiny_pods',
            kind: 'gauge',
            help: 'pods',
            labels: [['thread', 'any']],
            value: pods.size,
          },
          { name: 'tiny_total', kind: 'counter', help: 'constant', labels: [], value: 2 },
        ]);
        send({ type: 'report', id: message.id, refreshed: true });
      } else {
        send({
          type: 'report',
          id: message.id,
          done: true,
          connections: [...pods].flatMap(([podUid, pod]) =>
            [...pod.sockets].map((socket) =>
              connectionRecord({
                podUid,
                direction: 'inbound',
                source: `127.0.0.1:${socket.remotePort}`,
                destination: `127.0.0.1:${socket.localPort}`,
                actualDestination: `127.0.0.1:${socket.localPort}`,
                openedAtMs: 1,
              }),
            ),
          ),
        });
      }
      break;
    case 'pod.divide':
    case 'log.level':
    case 'revocations':
    case 'access.settings':
    case 'profile':
    case 'neighbour':
    case 'certificate':
    case 'series.released':
    case 'memory.release':
    case 'certificate.drop':
    case 'certificate.unavailable':
      break;
  }
}

/** Connects the thread to its control thread (a task). */
export function attach(task: ThreadAttachment): void {
  attachment = task;
  task.control.on('message', obey);
}

/** Serves one pod on the loopback port that its service account names (a task). */
export async function servePod({ pod }: PodTask): Promise<void> {
  if (pod.name === 'refused') throw new Error('refused on purpose');
  attachment?.state.postMessage({ type: 'watch', pod } satisfies StateRequest);
  const ended = Promise.withResolvers<void>();
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    if (pod.name === 'crash') process.exit(3);
    if (pod.name === 'quits') {
      socket.destroy();
      stop(pod.uid);
      return;
    }
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => socket.destroy());
    socket.write(`${attachment?.thread}\n`);
  });
  pods.set(pod.uid, { server, sockets, end: ended.resolve });
  const port = Number(pod.serviceAccount);
  server.listen({ port, host: '127.0.0.1', reusePort: true }, () =>
    send({ type: 'pod.listening', uid: pod.uid }),
  );
  server.on('error', (error) => {
    pods.delete(pod.uid);
    ended.reject(error);
  });
  await ended.promise;
}
