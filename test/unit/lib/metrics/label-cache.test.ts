import test from 'ava';
import { LabelCache, MAX_SETS_PER_WORKLOAD } from '../../../../lib/metrics/label-cache.ts';
import type { TrafficFacts } from '../../../../lib/metrics/traffic-labels.ts';
import { service, workload } from '../../../support/workloads.ts';

const facts: TrafficFacts = {
  reporter: 'source',
  sourceWorkload: workload({ workloadName: 'client' }),
  sourceBaggage: null,
  sourceIdentity: 'spiffe://cluster.local/ns/demo/sa/client',
  destinationWorkload: workload({ workloadName: 'web' }),
  destinationBaggage: null,
  destinationIdentity: null,
  destinationService: service(),
  mutualTls: true,
};
const nobody: TrafficFacts = { ...facts, sourceWorkload: null, destinationWorkload: null };

test('the same objects and texts are found again, any other are not', (t) => {
  const cache = new LabelCache<string>();
  cache.keep(facts, 'kept');
  t.is(cache.find({ ...facts }), 'kept');
  const baggage = {
    clusterId: null,
    namespace: null,
    workloadName: 'w',
    canonicalName: null,
    canonicalRevision: null,
    region: null,
    zone: null,
  };
  const others: Partial<TrafficFacts>[] = [
    { reporter: 'destination' },
    { sourceWorkload: workload({ workloadName: 'client' }) },
    { sourceBaggage: baggage },
    { sourceIdentity: null },
    { destinationWorkload: null },
    { destinationBaggage: baggage },
    { destinationIdentity: 'spiffe://cluster.local/ns/demo/sa/other' },
    { destinationService: null },
    { mutualTls: false },
  ];
  for (const other of others) t.is(cache.find({ ...facts, ...other }), undefined);
});

test('one workload has no more than so many, the oldest goes first', (t) => {
  const cache = new LabelCache<number>();
  const peer = (index: number): TrafficFacts => ({ ...facts, sourceIdentity: String(index) });
  for (let index = 0; index <= MAX_SETS_PER_WORKLOAD; index += 1) cache.keep(peer(index), index);
  t.is(cache.find(peer(0)), undefined);
  t.is(cache.find(peer(1)), 1);
  t.is(cache.find(peer(MAX_SETS_PER_WORKLOAD)), MAX_SETS_PER_WORKLOAD);
});

test('without a workload nothing is kept', (t) => {
  const cache = new LabelCache<string>();
  cache.keep(nobody, 'kept');
  t.is(cache.find(nobody), undefined);
});
