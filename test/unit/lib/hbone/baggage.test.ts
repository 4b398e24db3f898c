import test from 'ava';
import { formatBaggage, parseBaggage } from '../../../../lib/hbone/baggage.ts';
import { MAX_KEPT_BAGGAGE, MAX_KEPT_BAGGAGE_LENGTH } from '../../../../lib/hbone/limits.ts';
import { MAX_BAGGAGE_LENGTH, MAX_BAGGAGE_VALUE_LENGTH } from '../../../../lib/hbone/peer-text.ts';
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

// spec: hbone.md §6
test('any text survives: the header is visible ASCII, and is read back as it was', (t) => {
  const names = ['Straße', '名前-🦊', 'a\u0000b\r\nc', 'a,b=c;d "e" \\', '100%', '%41', ' x '];
  for (const name of names) {
    const header = formatBaggage(workload({ workloadName: name, canonicalName: name }));
    t.regex(header, /^[\x21-\x7e]+$/);
    t.like(parseBaggage(header), { workloadName: name, canonicalName: name, namespace: 'demo' });
  }
  const broken = formatBaggage(workload({ workloadName: 'a\ud800b' }));
  t.is(parseBaggage(broken).workloadName, 'a\ufffdb');
});

// spec: hbone.md §6
test('what needs no escape is written as Istio writes it, and what Istio writes is read as it is', (t) => {
  const header = formatBaggage(workload({ workloadName: 'web-1.a_b', canonicalName: 'a+b@c/d:e' }));
  t.true(header.includes('name=web-1.a_b,service.name=a+b@c/d:e'), header);
  t.is(parseBaggage('service.version=100%,cloud.region=%zz').canonicalRevision, '100%');
  t.is(parseBaggage('service.version=100%,cloud.region=%zz').region, '%zz');
  t.is(parseBaggage('cloud.region=%ff%C3%A4').region, '\ufffdä');
});

test('a description of very long names is cut, and is still one', (t) => {
  const long = '名'.repeat(1_000);
  const header = formatBaggage(
    workload({ workloadName: long, canonicalName: long, canonicalRevision: long, namespace: long }),
  );
  t.true(header.length <= MAX_BAGGAGE_LENGTH);
  t.is(parseBaggage(header).namespace, '名'.repeat(MAX_BAGGAGE_VALUE_LENGTH));
  t.is(parseBaggage(header).canonicalRevision, null);
});
