import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { createServer, request } from '../../../lib/http/node-http.ts';
import { systemClock } from '../../../lib/clock/clock.ts';
import { ObjectWatchers } from '../../../services/control-plane/api/object-watchers.ts';
import { CHUNK_CHARACTERS } from '../../../services/control-plane/limits.ts';
import type { KubeObject } from '../../../services/control-plane/manifests/kinds.ts';
import { ObjectStore } from '../../../services/control-plane/store/object-store.ts';
import { ManifestApi } from '../../../services/local-mesh/manifest-api.ts';
import { ObjectWatch } from '../../../services/local-mesh/object-watch.ts';
import { keptLog } from '../../support/actor-context.ts';
import { createControlPlaneKit } from '../../support/control-plane-kit.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { until } from '../../support/until.ts';

const account = (name: string, note: string): KubeObject => ({
  apiVersion: 'v1',
  kind: 'ServiceAccount',
  metadata: { name, namespace: 'demo', annotations: { note } },
});
const BIG = 'x'.repeat(6_000);
const COUNT = 400;

const noteOf = (object: KubeObject): string =>
  (object.metadata.annotations?.['note'] ?? '').slice(0, 8);

interface Line {
  readonly type: string;
  readonly object?: KubeObject;
}

interface Watched {
  readonly store: ObjectStore;
  /** The client's end, not read yet. */
  readonly reader: IncomingMessage;
  readonly served: ServerResponse;
  /** The number of characters of each write. */
  readonly writes: number[];
}

/** Makes a store of {@link COUNT} accounts and a watcher of it on a real socket. */
async function watched(t: ExecutionContext): Promise<Watched> {
  const dir = await makeScratch('watch');
  const { log } = keptLog('watch');
  const store = await ObjectStore.open(join(dir, 'state'), { log, clock: systemClock });
  const put = (name: string, note: string): Promise<void> =>
    store.transact((draft) => draft.put(account(name, note), null));
  await Promise.all(Array.from({ length: COUNT }, (_, index) => put(`a-${index}`, BIG)));
  const watchers = new ObjectWatchers(store, log);
  const writes: number[] = [];
  const { promise: serving, resolve } = Promise.withResolvers<ServerResponse>();
  const server = createServer((_incoming, response) => {
    const write = response.write.bind(response) as (text: string) => boolean;
    response.write = (text: unknown) => {
      writes.push((text as string).length);
      return write(text as string);
    };
    watchers.add('ServiceAccount', response);
    resolve(response);
  });
  const socketPath = join(dir, 'api.sock');
  server.listen(socketPath);
  const outgoing = request({ socketPath }).end();
  const [reader] = (await once(outgoing, 'response')) as [IncomingMessage];
  t.teardown(async () => {
    reader.destroy();
    watchers.close();
    server.close();
    await store.close();
    await rm(dir, { recursive: true, force: true });
  });
  return { store, reader, served: await serving, writes };
}

test('a list is sent in lines of one object and chunks of bounded size, in the time of its reader', async (t) => {
  const { store, reader, served, writes } = await watched(t);
  // While nothing reads, at most one chunk waits here; the rest is in the sockets' buffers.
  await until(() => served.writableNeedDrain, { what: 'the writer to wait' });
  const longest = CHUNK_CHARACTERS + BIG.length + 500;
  t.true(served.writableLength <= 2 * longest, `${served.writableLength} bytes wait`);
  t.true(writes.length < (COUNT * BIG.length) / CHUNK_CHARACTERS / 2, `${writes.length} writes`);

  // Meanwhile an account that was not sent yet is removed, one changes, and one is added.
  const last = `a-${COUNT - 1}`;
  await store.transact((draft) => draft.delete(`ServiceAccount/demo/${last}`));
  await store.transact((draft) => draft.put(account(`a-${COUNT - 2}`, 'changed'), null));
  await store.transact((draft) => draft.put(account('late', 'new'), null));

  const known: Record<string, string> = {};
  const lines: Line[] = [];
  for await (const text of createInterface({ input: reader })) {
    t.true(text.length < BIG.length + 500, `a line of ${text.length} characters`);
    const { type, object } = JSON.parse(text) as Line;
    lines.push({ type });
    if (type === 'SYNC') break;
    if (object === undefined) continue;
    if (type === 'DELETED') delete known[object.metadata.name];
    else known[object.metadata.name] = noteOf(object);
  }
  t.deepEqual(lines[0], { type: 'LIST' });
  t.deepEqual(lines.at(-1), { type: 'SYNC' });
  const held = [...store.state.ofKind('ServiceAccount')];
  t.deepEqual(
    known,
    Object.fromEntries(held.map((object) => [object.metadata.name, noteOf(object)])),
  );
  t.true(Math.max(...writes) <= longest, `${Math.max(...writes)} characters at once`);
});

test('the objects of a kind are answered in chunks too', async (t) => {
  const kit = await createControlPlaneKit(t);
  await kit.start();
  const documents = Array.from({ length: COUNT }, (_, index) => ({
    source: 'test',
    index,
    object: { ...account(`a-${index}`, BIG), metadata: { name: `a-${index}` } },
  }));
  t.is((await kit.api.send('POST', '/apply', { documents })).status, 200);
  const outgoing = request({
    socketPath: kit.api.socketPath,
    path: '/objects?kind=ServiceAccount',
  }).end();
  const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
  t.is(response.headers['transfer-encoding'], 'chunked');
  let text = '';
  for await (const part of response.setEncoding('utf8')) text += part as string;
  const { items } = JSON.parse(text) as { items: KubeObject[] };
  t.deepEqual(
    items.map(({ metadata }) => metadata.name),
    documents.map(({ object }) => object.metadata.name),
  );
});

const pod = (name: string): string => `
apiVersion: v1
kind: Pod
metadata: {name: ${name}, namespace: default}
spec: {nodeName: node-1, containers: [{name: app, image: app}]}
`;

test('a follower drops what went while the control plane was away, and keeps the rest', async (t) => {
  const kit = await createControlPlaneKit(t);
  const dir = join(kit.ca.dir, 'manifests');
  await mkdir(dir);
  await writeFile(join(dir, 'a.yaml'), pod('a'));
  await writeFile(join(dir, 'b.yaml'), pod('b'));
  const environment = { WEFT_CONTROL_PLANE_MANIFESTS_DIR: dir };
  const first = await kit.start(environment);
  const { log } = keptLog('follower');
  const watch = new ObjectWatch(
    { api: new ManifestApi(kit.api.socketPath), clock: systemClock, log },
    () => Promise.resolve(),
  );
  t.teardown(() => watch.stop());
  watch.start();
  const pods = (): string => [...watch.pods.keys()].sort().join(' ');
  await until(() => pods() === 'default/a default/b', { what: 'both pods' });
  await first.stop();
  await rm(join(dir, 'a.yaml'));
  await writeFile(join(dir, 'c.yaml'), pod('c'));
  await kit.start(environment);
  await until(() => pods() === 'default/b default/c', { what: 'the list after the restart' });
  t.is(pods(), 'default/b default/c');
});

test('a follower keeps its objects when a stream ends a list that it never began', async (t) => {
  const dir = await makeScratch('watch');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const socket = join(dir, 'api.sock');
  const added = (name: string): object => ({
    type: 'ADDED',
    object: { kind: 'Pod', metadata: { name, namespace: 'default', uid: name }, spec: {} },
  });
  const list = [{ type: 'LIST', version: 2 }, added('a'), { type: 'SYNC' }];
  const streams = [[...list, { type: 'SYNC' }], [{ type: 'SYNC' }], [...list, added('b')]];
  const server = createServer((incoming, response) => {
    const isPods = incoming.url === '/watch?kind=Pod';
    const lines = isPods ? (streams.shift() ?? []) : [];
    response.write(lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
    response.flushHeaders();
  });
  server.listen(socket);
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const { log } = keptLog('follower');
  const told: string[] = [];
  const watch = new ObjectWatch(
    { api: new ManifestApi(socket), clock: systemClock, log },
    async (change) => {
      if (change.kind === 'pod') told.push(`${change.key} ${watch.pods.has(change.key)}`);
    },
  );
  t.teardown(() => watch.stop());
  watch.start();
  await until(() => told.at(-1) === 'default/b true', { what: 'the pod of the last stream' });
  t.deepEqual(told, ['default/a true', 'default/a true', 'default/b true']);
});
