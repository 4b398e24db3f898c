import test from 'ava';
import { OnDemandDns } from '../../../../lib/metrics/on-demand-dns.ts';
import { RESPONSE_FLAGS_INDEX, trafficLabels } from '../../../../lib/metrics/traffic-labels.ts';
import type { TrafficFacts } from '../../../../lib/metrics/traffic-labels.ts';
import { seriesKit, trafficKit } from '../../../support/series.ts';
import { service, workload } from '../../../support/workloads.ts';

const facts: TrafficFacts = {
  reporter: 'source',
  sourceWorkload: workload({ workloadName: 'client', canonicalName: 'client', clusterId: 'c1' }),
  sourceBaggage: null,
  sourceIdentity: 'spiffe://cluster.local/ns/demo/sa/client',
  destinationWorkload: workload({
    workloadName: 'web',
    canonicalName: 'web',
    canonicalRevision: 'v1',
  }),
  destinationBaggage: null,
  destinationIdentity: null,
  destinationService: service(),
  mutualTls: true,
};

const noBytes = () => ({ sent: 0, received: 0 });

// spec: observability.md §2.1
test('labels stand in the order Istio emits them', (t) => {
  t.deepEqual(
    trafficLabels(facts).map(([name]) => name),
    [
      'reporter',
      'source_workload',
      'source_canonical_service',
      'source_canonical_revision',
      'source_workload_namespace',
      'source_principal',
      'source_app',
      'source_version',
      'source_cluster',
      'destination_service',
      'destination_service_namespace',
      'destination_service_name',
      'destination_workload',
      'destination_canonical_service',
      'destination_canonical_revision',
      'destination_workload_namespace',
      'destination_principal',
      'destination_app',
      'destination_version',
      'destination_cluster',
      'request_protocol',
      'response_flags',
      'connection_security_policy',
      'source_region',
      'source_zone',
      'destination_region',
      'destination_zone',
    ],
  );
  t.is(trafficLabels(facts)[RESPONSE_FLAGS_INDEX]?.[0], 'response_flags');
});

// spec: observability.md §2.1
test('values come from the mesh, then from baggage, else they are unknown', (t) => {
  const known = new Map(trafficLabels(facts));
  t.is(known.get('source_workload'), 'client');
  t.is(known.get('destination_principal'), 'spiffe://cluster.local/ns/demo/sa/web');
  t.is(known.get('destination_service'), 'web.demo.svc.cluster.local');
  t.is(known.get('source_region'), 'unknown');
  const said = new Map(
    trafficLabels({
      ...facts,
      sourceWorkload: null,
      destinationWorkload: null,
      destinationService: null,
      sourceIdentity: null,
      mutualTls: false,
      sourceBaggage: {
        clusterId: 'far',
        namespace: 'ns',
        workloadName: 'deploy',
        canonicalName: 'svc',
        canonicalRevision: 'v2',
        region: null,
        zone: null,
      },
    }),
  );
  t.is(said.get('source_workload'), 'deploy');
  t.is(said.get('source_app'), 'deploy');
  t.is(said.get('source_canonical_service'), 'svc');
  t.is(said.get('source_principal'), 'unknown');
  t.is(said.get('connection_security_policy'), 'unknown');
  t.false(said.has('source_region'));
});

// spec: observability.md §2.2
test('a connection counts once each, its bytes under the labels it was opened with', (t) => {
  const metrics = trafficKit();
  let bytes = { sent: 5, received: 7 };
  const connection = metrics.open(facts, () => bytes);
  const value = (name: string): number =>
    metrics
      .samples()
      .filter((sample) => sample.name === name)
      .reduce((sum, sample) => sum + sample.value, 0);
  t.is(value('istio_tcp_connections_opened_total'), 1);
  t.is(value('istio_tcp_sent_bytes_total'), 5);
  bytes = { sent: 50, received: 70 };
  connection.close('DENY');
  connection.close('-');
  t.is(value('istio_tcp_sent_bytes_total'), 50);
  t.is(value('istio_tcp_received_bytes_total'), 70);
  t.is(value('istio_tcp_connections_closed_total'), 1);
  t.is(value('istio_tcp_connections_failed_total'), 1);
  const closed = metrics
    .samples()
    .find((sample) => sample.name === 'istio_tcp_connections_closed_total');
  t.is(new Map(closed?.labels).get('response_flags'), 'DENY');
});

// spec: observability.md §2.2
test('a clean end is no failure', (t) => {
  const metrics = trafficKit();
  metrics.open(facts, noBytes).close('-');
  t.false(metrics.samples().some(({ name }) => name === 'istio_tcp_connections_failed_total'));
});

// spec: observability.md §2.2
test('open sockets go up and down once', (t) => {
  const metrics = trafficKit();
  const closed = metrics.socketOpened('destination');
  const open = (): (number | undefined)[] =>
    metrics
      .samples()
      .filter(({ name }) => name === 'istio_tcp_sockets_open')
      .map(({ value }) => value);
  t.deepEqual(open(), [0, 1]);
  closed();
  closed();
  t.deepEqual(open(), [0, 0]);
});

test('label sets are bounded and totals stay right', (t) => {
  const metrics = trafficKit({ maxLabelSets: 2 });
  for (let index = 0; index < 10; index += 1) {
    const sourceWorkload = workload({ workloadName: `w${index}` });
    metrics.open({ ...facts, sourceWorkload }, noBytes).close('-');
  }
  const opened = metrics
    .samples()
    .filter(({ name }) => name === 'istio_tcp_connections_opened_total');
  t.is(opened.length, 3);
  t.is(
    opened.reduce((sum, { value }) => sum + value, 0),
    10,
  );
  const overflow = metrics
    .samples()
    .find(({ name }) => name === 'weft_traffic_label_overflow_total');
  t.is(overflow?.value, 8);
});

// spec: observability.md §2.1
test('the mesh goes before baggage field by field, and baggage stands in for a gateway', (t) => {
  const baggage = {
    clusterId: 'far',
    namespace: 'ns',
    workloadName: 'deploy',
    canonicalName: 'svc',
    canonicalRevision: 'v2',
    region: 'r',
    zone: 'z',
  };
  const bare = workload({ canonicalRevision: '', clusterId: '', workloadName: 'own' });
  const source = new Map(trafficLabels({ ...facts, sourceWorkload: bare, sourceBaggage: baggage }));
  t.is(source.get('source_workload'), 'own');
  t.is(source.get('source_version'), 'v2');
  t.is(source.get('source_cluster'), 'far');
  t.is(source.get('source_region'), 'r');
  const derived = new Map(
    trafficLabels({ ...facts, destinationBaggage: { ...baggage, canonicalRevision: null } }),
  );
  t.is(derived.get('destination_workload'), 'deploy');
  t.is(derived.get('destination_version'), 'unknown', 'not the revision of the gateway');
  t.is(derived.get('destination_principal'), 'unknown');
  t.is(derived.get('destination_zone'), 'z');
});

// spec: observability.md §2.1
test('plaintext names the destination principal, and no principal of the source', (t) => {
  const labels = new Map(trafficLabels({ ...facts, sourceIdentity: null, mutualTls: false }));
  t.is(labels.get('source_principal'), 'unknown');
  t.is(labels.get('destination_principal'), 'spiffe://cluster.local/ns/demo/sa/web');
  t.is(labels.get('connection_security_policy'), 'unknown');
  t.is(labels.get('request_protocol'), 'tcp');
});

// spec: observability.md §2
test('names looked up on demand are counted by source and name, within a bound', (t) => {
  const { writer, samples } = seriesKit();
  const counted = new OnDemandDns(writer, 2);
  const client = workload({ workloadName: 'client' });
  for (const name of ['a', 'a', 'b', 'c', 'd']) counted.count(client, name);
  const values = samples().map(({ labels, value }) => [new Map(labels).get('hostname'), value]);
  t.deepEqual(values, [
    ['a', 2],
    ['b', 1],
    ['unknown', 2],
  ]);
  t.deepEqual(
    samples()[0]?.labels.map(([name]) => name),
    [
      'source_workload',
      'source_canonical_service',
      'source_canonical_revision',
      'source_workload_namespace',
      'source_principal',
      'source_app',
      'source_version',
      'source_cluster',
      'hostname',
    ],
  );
});
