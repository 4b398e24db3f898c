import { once } from 'node:events';
import { setImmediate as turn } from 'node:timers/promises';
import packet from 'dns-packet';
import { TcpFrames, frame } from '../../lib/dns/tcp-frames.ts';
import { dig, dnsClient, startDnsMesh } from '../support/dns-mesh.ts';
import { ordinary } from '../support/name-server.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { closed } from '../support/tcp-talk.ts';
import { until } from '../support/until.ts';
import { service, workload } from '../support/workloads.ts';

const web = service({
  name: 'web',
  hostname: 'web.demo.svc.cluster.local',
  addresses: [
    { network: '', ip: '10.96.0.10', length: null },
    { network: '', ip: 'fd96::10', length: null },
  ],
});

function query(name: string, id: number): Buffer {
  return packet.encode({
    type: 'query',
    id,
    flags: packet.RECURSION_DESIRED,
    questions: [{ type: 'A', name }],
  });
}

// spec: dns.md §6
test('a pod learns the names of the mesh over UDP and TCP, by every address of every family (spec: dns.md §1)', async (t) => {
  const { mesh, pod, upstream } = await startDnsMesh(t);
  mesh.state.set('demo/web.demo.svc.cluster.local', { kind: 'service', service: web });
  for (const server of ['@10.9.0.1', '@fd09::1']) {
    for (const flags of ['+short +notcp', '+short +tcp']) {
      t.deepEqual(
        await dig(pod, `${server} web.demo A`, flags),
        ['10.96.0.10'],
        `${server} ${flags}`,
      );
      t.deepEqual(await dig(pod, `${server} web AAAA`, flags), ['fd96::10'], `${server} ${flags}`);
    }
  }
  t.is(upstream.asked.length, 0);
  const requests = await mesh.metric('istio_dns_requests_total', {
    request_query_type: 'a',
    request_protocol: 'tcp',
    source_canonical_service: 'client-app',
    source_canonical_revision: 'v1',
  });
  t.is(requests, 2);
  t.is(await mesh.metric('istio_dns_upstream_requests_total'), 0);
  const line = await until(
    () => mesh.lines.find(({ scope, domain }) => scope === 'dns' && domain === 'web.demo'),
    { what: 'a line of the query' },
  );
  t.like(line, {
    level: 'debug',
    'src.workload': 'client',
    'src.namespace': 'demo',
    query: 'a',
    result: 'success',
    endpoints: 1,
  });
});

test('names come and go with their services, and what is gone is asked of the name servers (spec: dns.md §2.4, spec: dns.md §2.5)', async (t) => {
  const { mesh, pod } = await startDnsMesh(t);
  t.deepEqual(await dig(pod, '@10.9.0.1 web.demo.svc.cluster.local A'), ['192.0.2.1']);
  mesh.state.set('web', { kind: 'service', service: web });
  await until(
    async () => (await dig(pod, '@10.9.0.1 web.demo.svc.cluster.local A'))[0] === '10.96.0.10',
    {
      what: 'the new service',
    },
  );
  mesh.state.set('web', null);
  await until(
    async () => (await dig(pod, '@10.9.0.1 web.demo.svc.cluster.local A'))[0] === '192.0.2.1',
    {
      what: 'the end of the service',
    },
  );
});

test('a headless service is its endpoints as they are now (spec: dns.md §4)', async (t) => {
  const { mesh, pod } = await startDnsMesh(t);
  const key = 'demo/db.demo.svc.cluster.local';
  mesh.state.set(key, {
    kind: 'service',
    service: service({ name: 'db', hostname: 'db.demo.svc.cluster.local' }),
  });
  const endpoint = (index: number, healthy = true): void =>
    mesh.state.set(`db-${index}`, {
      kind: 'workload',
      workload: workload({
        uid: `db-${index}`,
        name: `db-${index}`,
        addresses: [`10.9.7.${index}`],
        services: { [key]: {} },
        status: healthy ? 'HEALTHY' : 'UNHEALTHY',
      }),
    });
  endpoint(1);
  endpoint(2);
  t.deepEqual((await dig(pod, '@10.9.0.1 db A')).sort(), ['10.9.7.1', '10.9.7.2']);
  endpoint(2, false);
  await until(async () => (await dig(pod, '@10.9.0.1 db A')).length === 1, {
    what: 'one endpoint',
  });
});

// spec: dns.md §6
test('other questions leave from the pod, bytes untouched, and are answered as they came (spec: dns.md §5)', async (t) => {
  const { mesh, pod, upstream } = await startDnsMesh(t);
  const socket = await dnsClient(t, pod);
  // A private-use type, a strange label and an unknown EDNS option.
  const strange = Buffer.concat([
    Buffer.from('abcd0120000100000000000103612e6202fffe00ff010001', 'hex'),
    Buffer.from('00002904d000008000000afde90006010203040506', 'hex'),
  ]);
  upstream.answer = ({ message }) => {
    const answer = Buffer.from(message);
    answer.writeUInt16BE(0x8520, 2);
    return answer;
  };
  socket.send(strange);
  const [reply] = (await once(socket, 'message')) as [Buffer];
  const [asked] = upstream.asked;
  t.is(asked?.from, pod.ip);
  t.deepEqual(asked?.message.subarray(2), strange.subarray(2));
  t.is(reply.readUInt16BE(0), 0xabcd);
  t.is(reply.readUInt16BE(2), 0x81a0);
  t.deepEqual(reply.subarray(4), strange.subarray(4));
  // Another opcode: NOTIFY.
  const notify = Buffer.from('123420000001000000000000036162630000060001', 'hex');
  upstream.answer = ({ message }) => {
    const answer = Buffer.from(message);
    answer.writeUInt16BE(0xa400, 2);
    return answer;
  };
  socket.send(notify);
  const [notified] = (await once(socket, 'message')) as [Buffer];
  t.is(notified.readUInt16BE(0), 0x1234);
  t.is(notified.readUInt16BE(2), 0xa400);
  t.is(
    await mesh.metric('istio_dns_upstream_requests_total', { request_query_type: 'unknown' }),
    2,
  );
  t.is(await mesh.metric('istio_dns_upstream_request_duration_seconds_count'), 2);
});

test('what a name server says is passed on: no such name, cut off, over TCP what came over TCP (spec: dns.md §5)', async (t) => {
  const { mesh, pod, upstream } = await startDnsMesh(t, {
    resolvConf: 'nameserver fd09::1\noptions timeout:1',
  });
  upstream.answer = ({ message, protocol }) => {
    const { id = 0, questions = [] } = packet.decode(message);
    if (questions[0]?.name === 'missing.example.com') {
      return packet.encode({
        type: 'response',
        id,
        flags: packet.AUTHORITATIVE_ANSWER | 3,
        questions,
      });
    }
    if (protocol === 'udp') {
      return packet.encode({ type: 'response', id, flags: packet.TRUNCATED_RESPONSE, questions });
    }
    const answers = Array.from({ length: 100 }, (_, index) => ({
      type: 'A' as const,
      name: questions[0]?.name ?? '',
      ttl: 60,
      data: `192.0.2.${index}`,
    }));
    return packet.encode({ type: 'response', id, questions, answers });
  };
  const missing = (await dig(pod, '@10.9.0.1 missing.example.com A', '+nocookie')).join('\n');
  t.regex(missing, /status: NXDOMAIN/);
  t.regex(missing, /flags: qr( rd)? ra;/);
  t.is((await dig(pod, '@10.9.0.1 big.example.com A')).length, 100);
  t.is(await mesh.metric('istio_dns_upstream_failures_total', { request_query_type: 'a' }), 1);
});

test('an answer is remembered for its lifetime by the pod that asked (spec: dns.md §5)', async (t) => {
  const { mesh, pod, upstream } = await startDnsMesh(t);
  const other = await mesh.addPod('other');
  for (const one of [pod, pod, other]) {
    t.deepEqual(await dig(one, '@10.9.0.1 www.example.com A', '+short +nocookie'), ['192.0.2.1']);
  }
  t.deepEqual(
    upstream.asked.map(({ from }) => from),
    [pod.ip, other.ip],
  );
  t.is(await mesh.metric('istio_dns_upstream_requests_total'), 3);
});

test('a forged answer is not believed and a dead name server is passed over (spec: dns.md §5)', async (t) => {
  const { pod, upstream } = await startDnsMesh(t, {
    resolvConf: 'nameserver 10.9.0.99\nnameserver 10.9.0.1\noptions timeout:1 attempts:1\n',
  });
  let forged = 0;
  upstream.answer = (asked) => {
    if (asked.protocol === 'udp' && forged === 0) {
      forged += 1;
      const wrong = ordinary(asked);
      wrong.writeUInt16BE(wrong.readUInt16BE(0) ^ 1, 0);
      return wrong;
    }
    return ordinary(asked);
  };
  // The first answer has another id, so the pod gets no answer.
  const first = (await dig(pod, '@10.9.0.1 www.example.com A', '+nocookie')).join('\n');
  t.regex(first, /status: SERVFAIL/);
  // Each server gets one second, which a busy machine may exceed.
  await until(async () => (await dig(pod, '@10.9.0.1 www.example.com A'))[0] === '192.0.2.1', {
    what: 'the answer of the other one',
  });
});

test('a slow name server keeps no name of the mesh waiting', async (t) => {
  const { mesh, pod, upstream } = await startDnsMesh(t);
  mesh.state.set('web', { kind: 'service', service: web });
  const held = Promise.withResolvers<void>();
  upstream.answer = async (asked) => {
    await held.promise;
    return ordinary(asked);
  };
  const socket = await dnsClient(t, pod);
  for (let index = 0; index < 500; index += 1) socket.send(query(`n${index}.example.com`, index));
  socket.send(query('web.demo', 0xffff));
  const [first] = (await once(socket, 'message')) as [Buffer];
  t.is(first.readUInt16BE(0), 0xffff);
  held.resolve();
});

test('a burst of 5,000 questions is answered whole, with no more sockets than allowed', async (t) => {
  const { mesh, pod, upstream } = await startDnsMesh(t);
  mesh.state.set('web', { kind: 'service', service: web });
  let under = 0;
  let most = 0;
  upstream.answer = async (asked) => {
    under += 1;
    most = Math.max(most, under);
    await turn();
    under -= 1;
    return ordinary(asked);
  };
  const socket = await dnsClient(t, pod);
  const seen = new Set<number>();
  let asked = 0;
  let heardMs = performance.now();
  socket.on('message', (message) => {
    seen.add(message.readUInt16BE(0));
    heardMs = performance.now();
  });
  const ask = (id: number): void => {
    socket.send(query(id % 5 === 0 ? 'web.demo' : `n${id}.example.com`, id));
  };
  // A busy machine drops packets between namespaces: repeat unanswered queries, as resolvers do.
  const repeat = (): void => {
    if (performance.now() - heardMs < 1_000) return;
    heardMs = performance.now();
    for (let id = 0; id < asked; id += 1) if (!seen.has(id)) ask(id);
  };
  for (; asked < 5_000; asked += 1) {
    ask(asked);
    // A socket with default buffers holds some 270 small packets; the kernel drops the others.
    while (asked - seen.size >= 200) {
      repeat();
      await turn();
    }
  }
  const whole = (): boolean => {
    repeat();
    return seen.size === 5_000;
  };
  await until(whole, { what: '5,000 answers' });
  t.true(most <= 128, `${most} at once`);
  t.is(await mesh.metric('weft_dns_refused_total'), 0);
});

test('while the mesh state cannot tell, a name is not looked for elsewhere', async (t) => {
  const { mesh, pod, upstream } = await startDnsMesh(t);
  mesh.state.synced = false;
  const waiting = dig(pod, '@10.9.0.1 web.demo A', '+nocookie');
  await until(() => mesh.state.lookups > 0, { what: 'a question to the state' });
  mesh.state.set('web', { kind: 'service', service: web });
  mesh.state.synced = true;
  t.regex((await waiting).join('\n'), /10\.96\.0\.10/);
  t.is(upstream.asked.length, 0);
});

test('a pod that the mesh does not know gets SERVFAIL and is counted as unknown (spec: dns.md §1)', async (t) => {
  const { mesh, upstream } = await startDnsMesh(t);
  const stranger = await mesh.addPod('stranger', { known: false });
  const text = (await dig(stranger, '@10.9.0.1 www.example.com A', '+nocookie')).join('\n');
  t.regex(text, /status: SERVFAIL/);
  t.is(upstream.asked.length, 0);
  const unknown = { source_canonical_service: 'unknown', request_query_type: 'a' };
  t.is(await mesh.metric('istio_dns_requests_total', unknown), 1);
  t.is(await mesh.metric('istio_dns_upstream_requests_total'), 0);
});

test('queries on one connection are answered as they are done, an idle one ends (spec: dns.md §1)', async (t) => {
  const { mesh, pod, upstream } = await startDnsMesh(t);
  mesh.state.set('web', { kind: 'service', service: web });
  const held = Promise.withResolvers<void>();
  upstream.answer = async (asked) => {
    await held.promise;
    return ordinary(asked);
  };
  const socket = await pod.connect('10.9.0.1', 53);
  const frames = new TcpFrames();
  const ids: number[] = [];
  socket.on('data', (chunk: Buffer) => {
    for (const message of frames.push(chunk)) ids.push(message.readUInt16BE(0));
  });
  socket.resume();
  socket.write(frame(query('slow.example.com', 1)));
  socket.write(frame(query('web.demo', 2)));
  await until(() => ids.length === 1, { what: 'the first answer' });
  t.deepEqual(ids, [2]);
  held.resolve();
  await until(() => ids.length === 2, { what: 'the second answer' });
  // Send half a message, then nothing.
  socket.write(Buffer.of(0, 50, 1));
  await once(socket, 'end');
  t.pass();
});

test('nonsense disturbs nobody', async (t) => {
  const { mesh, pod } = await startDnsMesh(t);
  mesh.state.set('web', { kind: 'service', service: web });
  const socket = await dnsClient(t, pod);
  for (let size = 0; size < 200; size += 1) socket.send(Buffer.alloc(size, size));
  const stream = await pod.connect('10.9.0.1', 53);
  stream.resume();
  stream.write(Buffer.from([0, 3, 1, 2, 3]));
  await once(stream, 'end');
  t.deepEqual(await dig(pod, '@10.9.0.1 web.demo A'), ['10.96.0.10']);
  t.true((await mesh.metric('weft_dns_malformed_total')) > 80);
});

test('a pod that stops answers what it was asked and then no more, at once it answers nothing (spec: dns.md §7)', async (t) => {
  const { mesh, pod, upstream } = await startDnsMesh(t);
  const other = await mesh.addPod('other');
  const held = Promise.withResolvers<void>();
  upstream.answer = async (asked) => {
    await held.promise;
    return ordinary(asked);
  };
  const asking = dig(pod, '@10.9.0.1 www.example.com A', '+short +nocookie');
  await until(() => upstream.asked.length === 1, { what: 'the question' });
  const cut = await other.connect('10.9.0.1', 53);
  const answers: Buffer[] = [];
  cut.on('data', (chunk: Buffer) => answers.push(chunk));
  cut.write(frame(query('other.example.com', 1)));
  await until(() => upstream.asked.length === 2, { what: 'the question of the other' });
  const gone = closed(cut);
  await mesh.stop(other);
  await gone;
  t.deepEqual(answers, []);
  const stopping = mesh.stop(pod, 'graceful', 10_000);
  held.resolve();
  t.deepEqual(await asking, ['192.0.2.1']);
  await stopping;
  const after = await pod.netns.exec('ss', '-Hlun');
  t.notRegex(after, /15053/);
});
