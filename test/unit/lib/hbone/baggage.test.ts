import test from 'ava';
import { formatBaggage, parseBaggage } from '../../../../lib/hbone/baggage.ts';
import { MAX_KEPT_BAGGAGE, MAX_KEPT_BAGGAGE_LENGTH } from '../../../../lib/hbone/limits.ts';
import { workload } from '../../../support/workloads.ts';

test('a header that comes again is read once', (t) => {
  const header = formatBaggage(workload({ workloadName: 'again' }));
  const baggage = parseBaggage(header);
  t.is(baggage.workloadName, 'again');
  t.is(parseBaggage(header), baggage);
});

test('more headers than are kept, and longer ones, are all read for what they say', (t) => {
  const name = (index: number): string => `pod-${index}`;
  for (let round = 0; round < 2; round += 1) {
    for (let index = 0; index <= MAX_KEPT_BAGGAGE; index += 1) {
      t.is(parseBaggage(`k8s.pod.name=${name(index)}`).workloadName, name(index));
    }
  }
  const long = `service.name=long,x=${'x'.repeat(MAX_KEPT_BAGGAGE_LENGTH)}`;
  t.is(parseBaggage(long).canonicalName, 'long');
  t.not(parseBaggage(long), parseBaggage(long));
  t.is(parseBaggage(undefined).canonicalName, null);
});

test('a workload that has changed is described anew', (t) => {
  const before = workload({ canonicalRevision: 'v1' });
  t.true(formatBaggage(before).includes('service.version=v1'));
  t.true(formatBaggage({ ...before, canonicalRevision: 'v2' }).includes('service.version=v2'));
});
