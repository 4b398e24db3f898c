/** Tests the cost of a scrape for a listener thread, counted in values read and messages sent. */
import { MessageChannel } from 'node:worker_threads';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { carriedEngine } from '../../lib/hbone/carried/engine.ts';
import { SeriesReader } from '../../lib/metrics/series-memory.ts';
import { CONNECTIONS_FOLDED_PER_TURN } from '../../lib/metrics/traffic.ts';
import type {
  ControlFromThread,
  ControlToThread,
} from '../../workers/listener/protocol/control.ts';
import { ListenerThread } from '../../workers/listener/thread.ts';
import { listenerSettings } from '../support/listener-kit.ts';
import { samplesOf } from '../support/series.ts';
import { trafficFacts } from '../support/traffic-facts.ts';
import { until } from '../support/until.ts';

/** Runs a listener thread on this thread and records its messages to node-proxy. */
function startThread(t: ExecutionContext) {
  const [control, state] = [new MessageChannel(), new MessageChannel()];
  const said: ControlFromThread[] = [];
  const series = new SeriesReader();
  const send = (message: ControlToThread): void => control.port1.postMessage(message);
  control.port1.on('message', (message: ControlFromThread) => {
    said.push(message);
    if (message.type !== 'series') return;
    const at = series.take(message.message);
    if (at !== null) send({ type: 'series.released', at });
  });
  const { context } = new ListenerThread(
    {
      thread: 0,
      settings: listenerSettings,
      control: control.port2,
      state: state.port2,
      revocations: null,
      budget: null,
    },
    carriedEngine,
    { write: () => {}, gather: () => {} },
  );
  t.teardown(() => {
    control.port1.close();
    state.port1.close();
  });
  let asked = 0;
  const scrape = async (): Promise<ControlFromThread[]> => {
    asked += 1;
    const before = said.length;
    send({ type: 'report', id: asked, what: 'metrics' });
    await until(() => said.some((message) => message.type === 'report' && message.id === asked), {
      what: 'the answer',
    });
    return said.slice(before);
  };
  const total = (name: string): number =>
    samplesOf(series)
      .filter((sample) => sample.name === name)
      .reduce((sum, { value }) => sum + value, 0);
  return { traffic: context.traffic, scrape, total };
}

test('a scrape of five thousand label sets is one short answer, and reads no label set', async (t) => {
  const { traffic, scrape, total } = startThread(t);
  const sets = 5_000;
  let reads = 0;
  for (let index = 0; index < sets; index += 1) {
    traffic.open(trafficFacts(index), () => ((reads += 1), { sent: 3, received: 2 })).close('-');
  }
  // The first scrape also sends the names of the thread's own values.
  await scrape();
  reads = 0;
  for (let round = 0; round < 3; round += 1) {
    const messages = await scrape();
    t.deepEqual(
      messages.map((message) => ('refreshed' in message ? 'refreshed' : message.type)),
      ['refreshed'],
    );
  }
  t.is(reads, 0);
  t.is(total('istio_tcp_connections_opened_total'), sets);
  t.is(total('istio_tcp_connections_closed_total'), sets);
  t.is(total('istio_tcp_sent_bytes_total'), 3 * sets);
  t.is(total('istio_tcp_received_bytes_total'), 2 * sets);
});

test('the bytes of live connections are as they are at the scrape, some read in a turn', async (t) => {
  const { traffic, scrape, total } = startThread(t);
  const facts = trafficFacts(0);
  const count = 3 * CONNECTIONS_FOLDED_PER_TURN;
  const turns: number[] = [];
  let now = 0;
  const ticking = { stop: false };
  const tick = (): void => {
    now += 1;
    if (!ticking.stop) setImmediate(tick);
  };
  tick();
  t.teardown(() => (ticking.stop = true));
  let bytes = 1;
  for (let index = 0; index < count; index += 1) {
    traffic.open(facts, () => {
      turns.push(now);
      return { sent: bytes, received: 0 };
    });
  }
  await scrape();
  t.is(total('istio_tcp_sent_bytes_total'), count);
  bytes = 5;
  await scrape();
  t.is(total('istio_tcp_sent_bytes_total'), 5 * count);
  t.is(turns.length, 2 * count);
  const inTurn = Object.values(Object.groupBy(turns, String)).map((reads) => reads?.length ?? 0);
  t.true(Math.max(...inTurn) <= CONNECTIONS_FOLDED_PER_TURN, inTurn.join());
});
