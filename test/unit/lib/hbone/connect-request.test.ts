import test from 'ava';
import { formatBaggage, parseBaggage } from '../../../../lib/hbone/baggage.ts';
import {
  connectHeaders,
  formatForwarded,
  formatTraceparent,
  newTrace,
  parseForwardedFor,
  parseForwardedHost,
  parseTraceparent,
} from '../../../../lib/hbone/connect-request.ts';
import { workload } from '../../../support/workloads.ts';

// spec: hbone.md §5
test('a trace survives its header', (t) => {
  const trace = newTrace();
  t.regex(formatTraceparent(trace), /^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/);
  t.deepEqual(parseTraceparent(formatTraceparent(trace)), trace);
  t.is(parseTraceparent(undefined), null);
  t.is(parseTraceparent('00-12-34-00'), null);
  t.is(parseTraceparent(`00-${'g'.repeat(32)}-${'0'.repeat(16)}-00`), null);
});

test('no id comes twice, also beyond those drawn at once', (t) => {
  const made = Array.from({ length: 1_000 }, () => newTrace());
  t.is(new Set(made.map(({ traceId }) => traceId)).size, made.length);
  t.is(new Set(made.map(({ spanId }) => spanId)).size, made.length);
});

// spec: hbone.md §5
test('forwarded names the client and the service', (t) => {
  t.is(formatForwarded('10.0.0.1', 80, null), 'for="10.0.0.1:80"');
  t.is(formatForwarded('::1', 80, 'web.demo.svc'), 'for="[::1]:80";host=web.demo.svc');
  t.is(parseForwardedHost('for="[::1]:80";host=web.demo.svc'), 'web.demo.svc');
  t.is(parseForwardedHost('for=x; host="web"'), 'web');
  t.is(parseForwardedHost('host='), null);
  t.is(parseForwardedHost('host=é'), null);
  t.is(parseForwardedHost(undefined), null);
});

test('the client of forwarded is an address, the one the peer added last', (t) => {
  t.deepEqual(parseForwardedFor('for="10.0.0.1:80";host=web'), { ip: '10.0.0.1', port: 80 });
  t.deepEqual(parseForwardedFor('for="[::1]:80"'), { ip: '::1', port: 80 });
  t.deepEqual(parseForwardedFor('host=web; For="[fd00::1]"'), { ip: 'fd00::1', port: 0 });
  t.deepEqual(parseForwardedFor('for=10.0.0.1'), { ip: '10.0.0.1', port: 0 });
  t.deepEqual(parseForwardedFor('for=10.9.9.9, for="[::ffff:10.0.0.1]:5"'), {
    ip: '10.0.0.1',
    port: 5,
  });
  for (const bad of [
    '',
    'for=',
    'for=unknown',
    'for=web:80',
    'for=10.0.0.1,',
    'for=\u00e9',
    'by=1',
  ]) {
    t.is(parseForwardedFor(bad), null, bad);
  }
  t.is(parseForwardedFor(undefined), null);
});

// spec: hbone.md §6
test('baggage is written in order, without what is missing, and read back', (t) => {
  const described = workload({
    namespace: 'demo',
    clusterId: 'Kubernetes',
    workloadName: 'web',
    canonicalName: 'web',
    canonicalRevision: 'v1',
    locality: { region: 'r', zone: 'z', subzone: '' },
  });
  const text = formatBaggage(described);
  t.is(
    text,
    'k8s.cluster.name=Kubernetes,k8s.namespace.name=demo,k8s.deployment.name=web,service.name=web,service.version=v1,cloud.region=r,cloud.availability_zone=z',
  );
  t.deepEqual(parseBaggage(text), {
    clusterId: 'Kubernetes',
    namespace: 'demo',
    workloadName: 'web',
    canonicalName: 'web',
    canonicalRevision: 'v1',
    region: 'r',
    zone: 'z',
  });
  t.is(parseBaggage('k8s.pod.name=,x=y, service.name=a=b').canonicalName, 'a');
  // An invisible character discards the whole header.
  t.deepEqual(parseBaggage(`${text},x=d\u0001`), parseBaggage(undefined));
  for (const workloadType of ['deployment', 'cronjob', 'pod', 'job'] as const) {
    const typed = formatBaggage(workload({ ...described, workloadType }));
    t.true(typed.includes(`,k8s.${workloadType}.name=web,`), typed);
    t.is(parseBaggage(typed).workloadName, 'web');
  }
  const bare = { clusterId: '', namespace: 'demo', workloadName: '', canonicalRevision: '' };
  t.is(
    formatBaggage(workload({ ...bare, canonicalName: 'web' })),
    'k8s.namespace.name=demo,service.name=web',
  );
  t.is(parseBaggage(undefined).namespace, null);
});

// spec: hbone.md §5
test('a request carries all three headers', (t) => {
  const headers = connectHeaders({
    sourceIp: '10.0.0.1',
    sourcePort: 5,
    sourceWorkload: workload({ namespace: 'demo' }),
    serviceHostname: 'web',
    trace: newTrace(),
  });
  t.deepEqual(Object.keys(headers), ['baggage', 'forwarded', 'traceparent']);
});
