/** The state thread: holds the mesh state of the process and does nothing else (design: state path). */
import { parentPort, workerData } from 'node:worker_threads';
import type { MessagePort } from 'node:worker_threads';
import { systemClock } from '../../../lib/clock/clock.ts';
import { present } from '../../../lib/errors/assert.ts';
import { asMeshError } from '../../../lib/errors/mesh-error.ts';
import { createLogger } from '../../../lib/log/logger.ts';
import { decodeAddress } from '../../../lib/xds/resources/address.ts';
import { decodeAuthorization } from '../../../lib/xds/resources/authorization.ts';
import type { StateRequest, StateResponse } from '../../../workers/listener/protocol.ts';
import type { FromStateThread, StateSettings, StateStats, ToStateThread } from './protocol.ts';
import { StateEngine } from './state-engine.ts';

/** How often changed gauges are told. */
const STATS_INTERVAL_MS = 1_000;

const settings = workerData as StateSettings;
const main = present(parentPort, 'the state thread has a parent');
const log = createLogger({ actor: 'node-proxy', node: settings.node, level: settings.logLevel });
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

async function dump(message: Extract<ToStateThread, { type: 'dump' }>): Promise<void> {
  const { id, section } = message;
  for await (const objects of engine.dump(section))
    tell({ type: 'dump', id, objects, done: false });
  tell({ type: 'dump', id, objects: [], done: true });
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
      dump(message).catch((error: unknown) => {
        const wire = asMeshError(error, 'STATE_INVALID', 'the state cannot be dumped').toWire();
        tell({ type: 'dump.failed', id: message.id, error: wire });
      });
      break;
    case 'log.level':
      log.level = message.level;
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
