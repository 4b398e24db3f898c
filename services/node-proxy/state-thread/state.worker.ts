/** The state thread: holds the mesh state of the process and does nothing else (design: state path). */
import { parentPort, workerData } from 'node:worker_threads';
import type { MessagePort } from 'node:worker_threads';
import { systemClock } from '../../../lib/clock/clock.ts';
import { present } from '../../../lib/errors/assert.ts';
import { asMeshError } from '../../../lib/errors/mesh-error.ts';
import { createLogger, setLogFilter } from '../../../lib/log/logger.ts';
import { ThreadProfiler } from '../../../lib/profile/thread-profiler.ts';
import { decodeAddress } from '../../../lib/xds/resources/address.ts';
import { decodeAuthorization } from '../../../lib/xds/resources/authorization.ts';
import type { StateRequest, StateResponse } from '../../../workers/listener/protocol.ts';
import type { FromStateThread, StateSettings, StateStats, ToStateThread } from './protocol.ts';
import { StateEngine } from './state-engine.ts';

/** How often changed gauges are told. */
const STATS_INTERVAL_MS = 1_000;

const settings = workerData as StateSettings;
const main = present(parentPort, 'the state thread has a parent');
const log = createLogger({
  actor: 'node-proxy',
  node: settings.node,
  level: settings.logLevel,
  format: settings.logFormat,
});
const ports = new Map<number, MessagePort>();
let toldStats: StateStats | null = null;
let toldReady = false;

const engine = new StateEngine(settings, {
  clock: systemClock,
  log,
  decodeAddress,
  decodeAuthorization,
  identitiesChanged: (identities) => tell({ type: 'identities', identities }),
});

function tell(message: FromStateThread): void {
  main.postMessage(message);
}

function connect(thread: number, port: MessagePort): void {
  ports.get(thread)?.close();
  ports.set(thread, port);
  const send = (message: StateResponse): void => port.postMessage(message);
  engine.connect(thread, send);
  port.on('message', (request: StateRequest) => engine.request(thread, request, send));
  port.on('close', () => {
    if (ports.get(thread) !== port) return;
    ports.delete(thread);
    engine.disconnect(thread);
  });
}

async function feed(message: Extract<ToStateThread, { type: 'feed' }>): Promise<void> {
  await engine.feed(message.table, message.step);
  if (engine.ready && !toldReady) {
    toldReady = true;
    tell({ type: 'ready' });
  }
  tell({ type: 'fed', id: message.id });
}

/** Dumps in progress; the main thread asks for one part after another, as its reader takes them. */
const dumps = new Map<number, AsyncGenerator<string>>();
const profiler = new ThreadProfiler();

async function nextPart(id: number): Promise<void> {
  const part = await dumps.get(id)?.next();
  if (part === undefined) return;
  if (part.done === true) dumps.delete(id);
  tell({ type: 'dump', id, text: part.done === true ? null : part.value });
}

/** Answers the question with a failure, where `work` fails. */
function answer(id: number, work: Promise<void>, what: string): void {
  work.catch((error: unknown) => {
    dumps.delete(id);
    tell({ type: 'failed', id, error: asMeshError(error, 'STATE_INVALID', what).toWire() });
  });
}

/** Steps of tables are applied one after another, whatever their table: a slice must not interleave with another's. */
let feeding: Promise<void> = Promise.resolve();

main.on('message', (message: ToStateThread) => {
  switch (message.type) {
    case 'connect':
      connect(message.thread, message.port);
      break;
    case 'feed':
      feeding = feeding.then(() => feed(message));
      break;
    case 'dump':
      dumps.set(message.id, engine.dump(message.section));
      break;
    case 'dump.next':
      answer(message.id, nextPart(message.id), 'the state cannot be dumped');
      break;
    case 'dump.end':
      dumps.delete(message.id);
      break;
    case 'profile':
      answer(
        message.id,
        profiler
          .run(message.command)
          .then((profile) => tell({ type: 'profile', id: message.id, profile })),
        'the state thread cannot be profiled',
      );
      break;
    case 'log.level':
      setLogFilter(log, message.level);
      break;
    case 'stop':
      stop();
      break;
  }
});

const statsTimer = setInterval(() => {
  const stats = engine.stats();
  if (JSON.stringify(stats) === JSON.stringify(toldStats)) return;
  toldStats = stats;
  tell({ type: 'stats', stats });
}, STATS_INTERVAL_MS);

function stop(): void {
  clearInterval(statsTimer);
  for (const port of ports.values()) port.close();
  main.close();
}
