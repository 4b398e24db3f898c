import test from 'ava';
import {
  LABEL_SET_IDLE_MS,
  MAX_REPORTED_LABEL_SETS,
  MAX_REPORTED_LABEL_SETS_PER_PEER,
  REPORTED_LABEL_SET_IDLE_MS,
} from '../../../../lib/metrics/label-sets.ts';
import type { LabelSetOptions } from '../../../../lib/metrics/label-sets.ts';
import type { TrafficFacts } from '../../../../lib/metrics/traffic-labels.ts';
import { trafficKit } from '../../../support/series.ts';
import { service, workload } from '../../../support/workloads.ts';

const PEER = 'spiffe://cluster.local/ns/demo/sa/peer';
const noBytes = () => ({ sent: 0, received: 0 });
const web = workload({ workloadName: 'web' });
const webService = service();

/** Makes a request of a peer on another network, which describes itself. */
function told(name: string, identity = PEER): TrafficFacts {
  return {
    reporter: 'destination',
    sourceWorkload: null,
    sourceBaggage: {
      clusterId: 'far',
      namespace: 'demo',
      workloadName: name,
      canonicalName: 'far',
      canonicalRevision: null,
      region: null,
      zone: null,
    },
    sourceIdentity: identity,
    destinationWorkload: web,
    destinationBaggage: null,
    destinationIdentity: null,
    destinationService: webService,
    mutualTls: true,
  };
}

/** Makes a request of a workload of the mesh. */
function known(name: string): TrafficFacts {
  const sourceWorkload = workload({ workloadName: name });
  return { ...told('ignored'), sourceBaggage: null, sourceWorkload };
}

function setUp(options: LabelSetOptions = {}) {
  let now = 0;
  const metrics = trafficKit({ now: () => now, ...options });
  const opened = () =>
    metrics
      .samples()
      .filter(({ name }) => name === 'istio_tcp_connections_opened_total')
      .map(({ labels, value }) => ({ source: new Map(labels).get('source_workload'), value }));
  return {
    metrics,
    opened,
    pass: (ms: number): void => {
      now += ms;
    },
    once: (facts: TrafficFacts): void => metrics.open(facts, noBytes).close('-'),
    overflow: () =>
      metrics.samples().find(({ name }) => name === 'weft_traffic_label_overflow_total')?.value,
  };
}

test('a peer that says ever new things of itself has a bounded number of label sets, and pushes out no other', (t) => {
  const { once, opened, overflow } = setUp({ maxLabelSets: 10 });
  const others = 5;
  for (let index = 0; index < MAX_REPORTED_LABEL_SETS_PER_PEER + others; index += 1) {
    once(told(`w${index}`));
  }
  t.is(opened().length, MAX_REPORTED_LABEL_SETS_PER_PEER + 1);
  t.deepEqual(opened().at(-1), { source: 'unknown', value: others });
  t.is(overflow(), others);
  once(told('another', 'spiffe://cluster.local/ns/demo/sa/honest'));
  t.deepEqual(opened().at(-1), { source: 'another', value: 1 });
  once(known('local'));
  t.deepEqual(opened().at(-1), { source: 'local', value: 1 });
});

test('what all peers say is bounded too, and what is left out is the word of the peer alone', (t) => {
  const { metrics, once, opened, overflow } = setUp();
  const peers = Math.ceil(MAX_REPORTED_LABEL_SETS / MAX_REPORTED_LABEL_SETS_PER_PEER) + 1;
  for (let peer = 0; peer < peers; peer += 1) {
    for (let index = 0; index < MAX_REPORTED_LABEL_SETS_PER_PEER; index += 1) {
      once(told(`w${index}`, `${PEER}${peer}`));
    }
  }
  t.is(opened().length, MAX_REPORTED_LABEL_SETS + 1);
  t.is(overflow(), MAX_REPORTED_LABEL_SETS_PER_PEER);
  const last = metrics.samples().find(({ value }) => value === MAX_REPORTED_LABEL_SETS_PER_PEER);
  const labels = new Map(last?.labels);
  t.is(labels.get('source_principal'), `${PEER}${peers - 1}`);
  t.is(labels.get('source_workload'), 'unknown');
  t.is(labels.get('destination_workload'), 'web');
});

test('the sets of the mesh do not push out those of peers either', (t) => {
  const { once, opened } = setUp({ maxLabelSets: 2 });
  for (const name of ['a', 'b', 'c', 'd']) once(known(name));
  once(told('far'));
  t.deepEqual(opened(), [
    { source: 'a', value: 1 },
    { source: 'b', value: 1 },
    { source: 'unknown', value: 2 },
    { source: 'far', value: 1 },
  ]);
});

test('baggage that says what the mesh knows makes no set of its own', (t) => {
  const { once, opened } = setUp({ maxReported: 0 });
  const sourceWorkload = workload({ workloadName: 'local', clusterId: 'c', namespace: 'demo' });
  const locality = { region: 'r', zone: 'z', subzone: '' };
  const whole = { ...sourceWorkload, canonicalRevision: 'v1', locality };
  once({ ...told('ignored'), sourceWorkload: whole });
  t.deepEqual(opened(), [{ source: 'local', value: 1 }]);
});

test('what lies behind a gateway is never taken for the gateway, described or not', (t) => {
  const { metrics } = setUp({ maxReported: 0 });
  const behind = {
    ...known('local'),
    reporter: 'source' as const,
    sourceBaggage: null,
    destinationBaggage: told('far').sourceBaggage,
    destinationIdentity: PEER,
  };
  metrics.open(behind, noBytes);
  const labels = new Map(metrics.samples()[0]?.labels);
  t.is(labels.get('destination_workload'), 'unknown');
  t.is(labels.get('destination_principal'), PEER);
});

test('a set that nobody uses is given up after it was told, one in use never', (t) => {
  const { metrics, once, opened, pass } = setUp();
  once(told('far'));
  once(known('local'));
  const live = metrics.open(told('live'), noBytes);
  t.is(opened().length, 3);
  pass(REPORTED_LABEL_SET_IDLE_MS);
  t.is(opened().length, 3, 'told a last time');
  t.deepEqual(
    opened().map(({ source }) => source),
    ['local', 'live'],
  );
  pass(LABEL_SET_IDLE_MS);
  opened();
  t.deepEqual(
    opened().map(({ source }) => source),
    ['live'],
  );
  live.close('-');
  once(told('far'));
  t.deepEqual(opened(), [
    { source: 'live', value: 1 },
    { source: 'far', value: 1 },
  ]);
});

test('a set that was given up is not found by the facts it was kept under', (t) => {
  const { once, opened, pass } = setUp();
  const facts = told('far');
  once(facts);
  opened();
  pass(REPORTED_LABEL_SET_IDLE_MS);
  opened();
  t.deepEqual(opened(), []);
  once(facts);
  once(facts);
  t.deepEqual(opened(), [{ source: 'far', value: 2 }]);
});

test('without anyone who scrapes there is room again all the same', (t) => {
  const { once, opened, pass, overflow } = setUp({ maxReported: 1 });
  once(told('first'));
  once(told('second'));
  pass(60_000);
  once(told('third'));
  pass(REPORTED_LABEL_SET_IDLE_MS);
  once(told('fourth'));
  t.deepEqual(
    opened().map(({ source }) => source),
    ['unknown', 'fourth'],
  );
  t.is(overflow(), 2);
});
