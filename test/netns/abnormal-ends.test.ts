/** Tests how an abnormal end reaches the applications of a mesh (docs/decisions/abnormal-ends.md). */
import type { Socket } from 'node:net';
import type { ExecutionContext } from 'ava';
import { stall } from '../support/bulk.ts';
import { matchFixture } from '../support/model-fixtures.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { podPair } from '../support/pod-pair.ts';
import type { PodPair } from '../support/pod-pair.ts';
import { heard } from '../support/tcp-talk.ts';
import { readSocketToEnd, readToEnd } from '../support/tunnel-kit.ts';

const PORT = 8080;

interface Ends extends PodPair {
  readonly near: Socket;
  readonly far: Socket;
}

/** Connects two applications; both have sent bytes. */
async function connected(t: ExecutionContext, by: 'tunnel' | 'same-node'): Promise<Ends> {
  const pair = await podPair(t, { sameNodeFastPath: by === 'same-node' });
  const { promise: accepted, resolve } = Promise.withResolvers<Socket>();
  await pair.web.serve(PORT, resolve);
  const near = await pair.client.connect(pair.web.ip, PORT);
  const far = await accepted;
  for (const socket of [near, far]) socket.on('error', () => {});
  near.write('x');
  await heard(far);
  far.write('y');
  await heard(near);
  return { ...pair, near, far };
}

function deny({ mesh }: PodPair): Promise<void> {
  return mesh.setPolicy('demo/port', {
    name: 'port',
    namespace: 'demo',
    scope: 'NAMESPACE',
    action: 'DENY',
    rules: [{ clauses: [{ matches: [matchFixture({ destinationPorts: [PORT] })] }] }],
    dryRun: false,
  });
}

async function linesOf({ mesh }: PodPair) {
  const lines = await mesh.accessLines(2);
  const of = (direction: string) => lines.find((line) => line['direction'] === direction);
  return { inbound: of('inbound'), outbound: of('outbound') };
}

// spec: dataplane.md §10, spec: dataplane.md §11
for (const by of ['tunnel', 'same-node'] as const) {
  test(`a cut by policy reaches a client that does not read as a reset, and both lines name it (${by})`, async (t) => {
    const ends = await connected(t, by);
    const { near, far } = ends;
    near.pause();
    await stall(far);
    const serverHeard = readToEnd(far);
    await deny(ends);
    t.is((await serverHeard).end, 'reset');
    const { inbound, outbound } = await linesOf(ends);
    t.regex(String(inbound?.['error']), /policy change/);
    t.regex(String(outbound?.['error']), /the peer cut the connection/);
    const { bytes, end } = await readSocketToEnd(near);
    t.is(end, 'reset');
    const received = Number(outbound?.['bytes_recv']);
    t.true(bytes.length < received, `${bytes.length} of ${received} bytes arrived`);
  });

  for (const who of ['client', 'server'] as const) {
    test(`a reset of the ${who} resets the other application, and is no failure (${by})`, async (t) => {
      const ends = await connected(t, by);
      const [gone, left] = who === 'client' ? [ends.near, ends.far] : [ends.far, ends.near];
      gone.resetAndDestroy();
      t.is((await readToEnd(left)).end, 'reset');
      const { inbound, outbound } = await linesOf(ends);
      for (const line of [inbound, outbound]) t.false('error' in (line ?? { error: 'none' }));
    });
  }
}

test('a cut by policy resets both applications of a plaintext connection', async (t) => {
  const pair = await podPair(t);
  const { mesh, web } = pair;
  const outside = await mesh.addPod('outside', { enrolled: false });
  const { promise: accepted, resolve } = Promise.withResolvers<Socket>();
  await web.serve(PORT, resolve);
  const near = await outside.connect(web.ip, PORT);
  near.on('error', () => {});
  near.write('x');
  const far = await accepted;
  await heard(far);
  const bothHear = Promise.all([readToEnd(near), readToEnd(far)]);
  await deny(pair);
  const heardByBoth = await bothHear;
  t.deepEqual(
    heardByBoth.map(({ end }) => end),
    ['reset', 'reset'],
  );
  const [line] = await mesh.accessLines(1);
  t.regex(String(line?.['error']), /policy change/);
});

test('a connection that cannot be made is reset', async (t) => {
  const { mesh, client, web } = await podPair(t);
  const socket = await client.connect(web.ip, PORT + 1);
  t.is((await readToEnd(socket)).end, 'reset');
  await mesh.accessLines(2);
});

test('a pod that is stopped resets its applications, and their peers', async (t) => {
  const ends = await connected(t, 'tunnel');
  const { mesh, near, far, web } = ends;
  const bothHear = Promise.all([readToEnd(near), readToEnd(far)]);
  await mesh.stop(web, 'immediate');
  const heardByBoth = await bothHear;
  t.deepEqual(
    heardByBoth.map(({ end }) => end),
    ['reset', 'reset'],
  );
});
