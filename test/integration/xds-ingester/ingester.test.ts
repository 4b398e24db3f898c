import { writeFile } from 'node:fs/promises';
import test from 'ava';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../../lib/xds/type-urls.ts';
import {
  createIngesterKit,
  kitPath,
  servePolicy,
  serveService,
  serveWorkload,
} from '../../support/ingester-kit.ts';
import { until } from '../../support/until.ts';

/** Returns the key of a policy's rejection. */
const row = (name: string): string => `${AUTHORIZATION_TYPE}/demo/${name}`;

const garbage = Buffer.from([0xff, 0xff, 0xff]);

test('state arrives, changes and goes, and the ingester says when it is ready', async (t) => {
  const kit = await createIngesterKit(t);
  serveWorkload(kit.ads, 'uid-1', '1');
  serveService(kit.ads, 'web', '1');
  servePolicy(kit.ads, 'deny', '1');
  const actor = await kit.start({
    CLUSTER_ID: 'c1',
    ISTIO_META_FLAVOUR: 'plain',
    ISTIO_METAJSON_LIMITS: '{"n":1}',
    'XDS_HEADER_X-Extra': 'yes',
  });
  t.deepEqual(actor.context.readiness.pending(), ['state manager']);
  await kit.holds('addresses', ['uid-1', 'demo/web.test']);
  await kit.holds('authorizations', ['demo/deny']);
  await kit.holds('rejections', []);
  await until(() => actor.context.readiness.pending().length === 0, { what: 'readiness' });
  const stream = kit.ads.streams[0];
  t.deepEqual(
    stream?.requests.slice(0, 2).map(({ typeUrl }) => typeUrl),
    [ADDRESS_TYPE, AUTHORIZATION_TYPE],
  );
  t.is(
    stream?.requests[0]?.node?.id,
    'ztunnel~1.1.1.1~ingester-0.weft-system~weft-system.svc.cluster.local',
  );
  const fields = stream?.requests[0]?.node?.metadata?.fields ?? {};
  t.is(fields['FLAVOUR']?.stringValue, 'plain');
  t.is(fields['LIMITS']?.structValue?.fields?.['n']?.numberValue, 1);
  t.is(stream?.headers['clusterid'], 'c1');
  t.is(stream?.headers['x-extra'], 'yes');
  t.is(stream?.token, 'token-1');
  t.is(stream?.requests.filter(({ node }) => node).length, 2, 'no node in ACKs');

  serveWorkload(kit.ads, 'uid-1', '2', '10.0.0.9');
  serveWorkload(kit.ads, 'uid-2', '1');
  kit.ads.remove(ADDRESS_TYPE, 'demo/web.test');
  kit.ads.remove(AUTHORIZATION_TYPE, 'demo/deny');
  kit.ads.push();
  await kit.holds('addresses', ['uid-1', 'uid-2']);
  await kit.holds('authorizations', []);
  t.is(kit.ads.streams.length, 1);
  const metrics = await actor.metrics();
  t.regex(
    metrics,
    /istio_xds_message_total\{url="type.googleapis.com\/istio.workload.Address"\} 2/,
  );
  t.regex(
    metrics,
    /istio_xds_message_bytes_total\{url="type.googleapis.com\/istio.workload.Address"\} [1-9]/,
  );
});

test('a malformed resource is refused by name, the others of the push are applied, the last good one stays', async (t) => {
  const kit = await createIngesterKit(t);
  servePolicy(kit.ads, 'good', '1');
  servePolicy(kit.ads, 'breaks', '1');
  serveWorkload(kit.ads, 'uid-1', '1');
  const actor = await kit.start();
  await kit.holds('authorizations', ['demo/good', 'demo/breaks']);
  const before = kit.tables.authorizations.rows.get('demo/breaks');

  kit.ads.set(AUTHORIZATION_TYPE, 'demo/breaks', '2', garbage);
  kit.ads.set(AUTHORIZATION_TYPE, 'demo/never-good', '1', garbage);
  kit.ads.set(AUTHORIZATION_TYPE, 'demo/empty', '1', null);
  servePolicy(kit.ads, 'added', '1');
  kit.ads.push();
  await kit.holds('rejections', [row('breaks'), row('never-good'), row('empty')]);
  await kit.holds('authorizations', ['demo/good', 'demo/breaks', 'demo/added']);
  t.is(kit.tables.authorizations.rows.get('demo/breaks'), before);
  const rejection = JSON.parse(kit.tables.rejections.rows.get(row('never-good')) ?? '{}') as Record<
    string,
    string
  >;
  t.is(rejection['type'], AUTHORIZATION_TYPE);
  t.is(rejection['name'], 'demo/never-good');
  t.regex(rejection['reason'] ?? '', /not a valid istio.security.Authorization/);
  const nack = await until(() => kit.ads.streams[0]?.nacks()[0], { what: 'the NACK' });
  t.regex(nack, /demo\/breaks: .*; demo\/never-good: .*; demo\/empty: resource without a payload/);
  t.regex(await actor.metrics(), /weft_xds_nacks_total\{url="[^"]*Authorization"\} 1/);

  // A new stream lists the rejected resources, so that the server repeats them and reports removals.
  kit.ads.remove(AUTHORIZATION_TYPE, 'demo/empty');
  kit.ads.endStreams();
  await until(() => kit.ads.streams.length === 2, { what: 'the next stream' });
  await kit.holds('rejections', [row('breaks'), row('never-good')]);
  t.deepEqual(kit.ads.streams[1]?.resumed(AUTHORIZATION_TYPE), {
    'demo/good': '1',
    'demo/breaks': '1',
    'demo/added': '1',
    'demo/never-good': '',
    'demo/empty': '',
  });
  servePolicy(kit.ads, 'breaks', '3');
  kit.ads.remove(AUTHORIZATION_TYPE, 'demo/never-good');
  kit.ads.push();
  await kit.holds('rejections', []);
  await kit.holds('authorizations', ['demo/good', 'demo/breaks', 'demo/added']);
});

test('a response of a type nobody asked for is acknowledged and changes nothing', async (t) => {
  const kit = await createIngesterKit(t);
  serveWorkload(kit.ads, 'uid-1', '1');
  const actor = await kit.start();
  await kit.holds('addresses', ['uid-1']);
  kit.ads.send({
    typeUrl: 'type.googleapis.com/foreign.Thing',
    nonce: 'x',
    resources: [{ name: 'a' }],
  });
  await until(() => kit.ads.streams[0]?.acks('type.googleapis.com/foreign.Thing') === 1, {
    what: 'the ACK',
  });
  t.true(actor.lines.some(({ message }) => message === 'xds.type-ignored'));
});

test('the control plane goes and comes back: the state stays, only changes are sent', async (t) => {
  const kit = await createIngesterKit(t);
  serveWorkload(kit.ads, 'uid-1', '1');
  serveWorkload(kit.ads, 'uid-2', '1');
  servePolicy(kit.ads, 'deny', '1');
  const actor = await kit.start();
  await kit.holds('addresses', ['uid-1', 'uid-2']);
  await kit.holds('authorizations', ['demo/deny']);
  kit.ads.stop();
  kit.ads.remove(ADDRESS_TYPE, 'uid-2');
  serveWorkload(kit.ads, 'uid-3', '1');
  await until(() => actor.lines.some(({ message }) => message === 'xds.stream-ended'), {
    what: 'the loss',
  });
  t.is(kit.tables.addresses.rows.size, 2);
  await kit.ads.start();
  await kit.holds('addresses', ['uid-1', 'uid-3']);
  t.is(kit.tables.addresses.copies, 1, 'nothing was replaced');
  t.deepEqual(kit.ads.streams.at(-1)?.resumed(ADDRESS_TYPE), { 'uid-1': '1', 'uid-2': '1' });
  t.regex(
    await actor.metrics(),
    /istio_xds_connection_terminations_total\{reason="(ConnectionError|Error|Reconnect)"\} \d/,
  );
});

test('a state whose versions istiod would not read is asked for whole, and what is gone is removed', async (t) => {
  const kit = await createIngesterKit(t);
  const uid = (index: number): string => `${'long-'.repeat(380)}${index}`;
  for (let index = 0; index < 2_400; index += 1) serveWorkload(kit.ads, uid(index), '1');
  await kit.start();
  await until(() => kit.tables.addresses.rows.size === 2_400, { what: 'all workloads' });
  kit.ads.stop();
  kit.ads.remove(ADDRESS_TYPE, uid(7));
  serveWorkload(kit.ads, uid(8), '2', '10.0.0.9');
  serveWorkload(kit.ads, 'added', '1');
  await kit.ads.start();
  await until(() => kit.tables.addresses.rows.has('added'), { what: 'the new workload' });
  await until(() => !kit.tables.addresses.rows.has(uid(7)), { what: 'the removal' });
  t.is(kit.tables.addresses.rows.size, 2_400);
  t.deepEqual(kit.ads.streams.at(-1)?.resumed(ADDRESS_TYPE), {});
  t.is(kit.tables.addresses.copies, 1, 'nothing was replaced');
});

test('a restarted ingester goes on from what Redis stores', async (t) => {
  const kit = await createIngesterKit(t);
  serveWorkload(kit.ads, 'uid-1', '1');
  serveWorkload(kit.ads, 'uid-2', '7');
  const first = await kit.start();
  await kit.holds('addresses', ['uid-1', 'uid-2']);
  await first.stop();
  kit.ads.remove(ADDRESS_TYPE, 'uid-1');
  const streams = kit.ads.streams.length;
  await kit.start();
  await kit.holds('addresses', ['uid-2']);
  t.deepEqual(kit.ads.streams[streams]?.resumed(ADDRESS_TYPE), { 'uid-1': '1', 'uid-2': '7' });
  t.is(kit.tables.addresses.copies, 1);
  t.is(kit.tables.addresses.epochs.length, 1);
});

test('without a control plane the last known good state stays in force', async (t) => {
  const kit = await createIngesterKit(t);
  serveWorkload(kit.ads, 'uid-1', '1');
  const first = await kit.start();
  await kit.holds('addresses', ['uid-1']);
  await first.stop();
  kit.ads.stop();
  const second = await kit.start();
  await until(() => second.lines.some(({ message }) => message === 'xds.stream-ended'), {
    what: 'a try',
  });
  t.deepEqual([...kit.tables.addresses.rows.keys()], ['uid-1']);
  t.deepEqual(second.context.readiness.pending(), ['state manager']);
});

test('the token is read for every stream', async (t) => {
  const kit = await createIngesterKit(t);
  const tokenFile = kitPath(kit, 'istio-token');
  await writeFile(tokenFile, 'first\n');
  kit.ads.acceptedToken = 'second';
  serveWorkload(kit.ads, 'uid-1', '1');
  const actor = await kit.start({ AUTH_TOKEN: tokenFile });
  await until(() => actor.lines.some(({ message }) => message === 'xds.stream-ended'), {
    what: 'the refusal',
  });
  t.is(kit.tables.addresses.copies, 0);
  await writeFile(tokenFile, 'second\n');
  await kit.holds('addresses', ['uid-1']);
  t.is(kit.ads.streams[0]?.token, 'second');
  t.regex(
    await actor.metrics(),
    /istio_xds_connection_terminations_total\{reason="ConnectionError"\} \d/,
  );
});

test('a server with a foreign certificate gets no token', async (t) => {
  const kit = await createIngesterKit(t);
  const other = await createIngesterKit(t);
  const actor = await kit.start({ XDS_ROOT_CA: other.ads.rootPath });
  await until(() => actor.lines.some(({ message }) => message === 'xds.stream-ended'), {
    what: 'the refusal',
  });
  t.is(kit.ads.streams.length, 0);
  t.is(kit.tables.addresses.copies, 0);
  const reason = actor.lines.find(({ message }) => message === 'xds.stream-ended')?.['error'];
  t.regex(String(reason), /certificate/);
});

test('Redis loses everything: it is written again from memory, under a new epoch', async (t) => {
  const kit = await createIngesterKit(t);
  serveWorkload(kit.ads, 'uid-1', '1');
  servePolicy(kit.ads, 'deny', '1');
  kit.ads.set(AUTHORIZATION_TYPE, 'demo/bad', '1', garbage);
  await kit.start();
  await kit.holds('addresses', ['uid-1']);
  await kit.holds('rejections', [`${AUTHORIZATION_TYPE}/demo/bad`]);
  await kit.redis.kill();
  serveWorkload(kit.ads, 'uid-2', '1');
  kit.ads.push();
  await until(() => kit.ads.streams[0]?.acks(ADDRESS_TYPE) === 2, {
    what: 'the ACK without Redis',
  });
  await kit.redis.start({ empty: true });
  await kit.holds('addresses', ['uid-1', 'uid-2']);
  await kit.holds('authorizations', ['demo/deny']);
  await until(() => kit.tables.addresses.copies >= 2, { what: 'the new copy', timeoutMs: 20_000 });
  t.is(new Set(kit.tables.addresses.epochs).size, 2);
  t.is(kit.ads.streams.length, 1, 'the control plane was not bothered');
});

test('Redis away and back with its data: what came meanwhile is written', async (t) => {
  const kit = await createIngesterKit(t);
  serveWorkload(kit.ads, 'uid-1', '1');
  await kit.start();
  await kit.holds('addresses', ['uid-1']);
  await kit.redis.kill();
  serveWorkload(kit.ads, 'uid-2', '1');
  kit.ads.push();
  await until(() => kit.ads.streams[0]?.acks(ADDRESS_TYPE) === 2, {
    what: 'the ACK without Redis',
  });
  await kit.redis.start();
  await kit.holds('addresses', ['uid-1', 'uid-2']);
  t.pass();
});

test('a standby takes over when the leader ends', async (t) => {
  const kit = await createIngesterKit(t);
  serveWorkload(kit.ads, 'uid-1', '1');
  const leader = await kit.start();
  await kit.holds('addresses', ['uid-1']);
  const standby = await kit.start();
  await until(() => standby.context.readiness.pending().length === 0, {
    what: 'its readiness as a standby',
  });
  await until(() => kit.ads.streams[1]?.acks(ADDRESS_TYPE) === 1, {
    what: 'the standby to hold the state',
  });
  t.deepEqual(kit.ads.streams[1]?.resumed(ADDRESS_TYPE), {}, 'from the control plane alone');
  await leader.stop();
  serveWorkload(kit.ads, 'uid-2', '1');
  kit.ads.push();
  await kit.holds('addresses', ['uid-1', 'uid-2']);
  t.is(kit.tables.addresses.epochs.length, 1);
});

test('a stream that the server ends is followed by another', async (t) => {
  const kit = await createIngesterKit(t);
  serveWorkload(kit.ads, 'uid-1', '1');
  const actor = await kit.start();
  await kit.holds('addresses', ['uid-1']);
  kit.ads.endStreams();
  await until(() => kit.ads.streams.length === 2, { what: 'the next stream' });
  t.regex(await actor.metrics(), /terminations_total\{reason="Complete"\} 1/);
  t.is(kit.tables.addresses.rows.size, 1);
});

test('a local file stands beside the control plane, or alone', async (t) => {
  const kit = await createIngesterKit(t);
  serveWorkload(kit.ads, 'uid-1', '1');
  const path = kitPath(kit, 'mesh.yaml');
  await writeFile(
    path,
    'workloads: [{uid: local-1, namespace: demo, workloadIps: [10.9.9.9], services: {}}]\n',
  );
  const both = await kit.start({ LOCAL_XDS_PATH: path });
  await kit.holds('addresses', ['local-1', 'uid-1']);
  await both.stop();
  const alone = await kit.start({
    XDS_ADDRESS: '',
    LOCAL_XDS:
      'workloads: [{uid: local-2, namespace: demo, workloadIps: [10.9.9.8], services: {}}]',
  });
  await kit.holds('addresses', ['local-2']);
  await until(() => alone.context.readiness.pending().length === 0, { what: 'readiness' });
  t.is(kit.ads.streams.length, 1);
});
