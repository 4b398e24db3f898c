import { mkdir, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import {
  HostsFiles,
  externalEntryOf,
  renderHosts,
  renderResolvConf,
  serviceEntryOf,
} from '../../../../services/local-mesh/hosts-files.ts';
import type { HostEntry } from '../../../../services/local-mesh/hosts-files.ts';
import { serviceEntryObject, serviceObject } from '../../../../services/local-mesh/objects.ts';
import { makeScratch } from '../../../support/leftovers.ts';

const API: HostEntry = {
  addresses: ['10.96.0.1', 'fd00:96::1'],
  names: ['api.demo.svc.cluster.local', 'api.demo.svc', 'api.demo'],
  shortName: 'api',
  namespace: 'demo',
};

const service = (spec: object) =>
  serviceObject.parse({ kind: 'Service', metadata: { name: 'api', namespace: 'demo' }, spec });
const external = (spec: object) =>
  serviceEntryObject.parse({
    kind: 'ServiceEntry',
    metadata: { name: 'ext', namespace: 'demo' },
    spec,
  });

test('a service is known by its names at each of its addresses, once', (t) => {
  t.deepEqual(
    serviceEntryOf(service({ clusterIP: '10.96.0.1', clusterIPs: ['10.96.0.1', 'fd00:96::1'] })),
    API,
  );
});

for (const spec of [{}, { clusterIP: 'None', clusterIPs: ['None'] }, { clusterIP: '' }]) {
  test(`a service with ${JSON.stringify(spec)} has no addresses to tell`, (t) => {
    t.is(serviceEntryOf(service(spec)), null);
  });
}

test('a service entry is known by its whole names and single addresses', (t) => {
  t.deepEqual(
    externalEntryOf(
      external({ hosts: ['a.example', '*.b.example'], addresses: ['240.0.0.1', '10.0.0.0/8'] }),
    ),
    { addresses: ['240.0.0.1'], names: ['a.example'], shortName: null, namespace: 'demo' },
  );
  t.is(externalEntryOf(external({ hosts: ['*.b.example'], addresses: ['240.0.0.1'] })), null);
  t.is(externalEntryOf(external({ hosts: ['a.example'], addresses: ['10.0.0.0/8'] })), null);
});

test('a pod asks the address of its node, within its namespace first', (t) => {
  t.is(
    renderResolvConf('demo', '10.200.0.11'),
    'nameserver 10.200.0.11\nsearch demo.svc.cluster.local svc.cluster.local cluster.local\n' +
      'options ndots:5 timeout:2 attempts:2\n',
  );
});

test('the short name is valid in the own namespace only', (t) => {
  t.is(
    renderHosts('demo', [API]),
    [
      '127.0.0.1 localhost',
      '::1 localhost ip6-localhost ip6-loopback',
      '10.96.0.1 api.demo.svc.cluster.local api.demo.svc api.demo api',
      'fd00:96::1 api.demo.svc.cluster.local api.demo.svc api.demo api',
      '',
    ].join('\n'),
  );
  t.false(renderHosts('other', [API]).includes(' api\n'));
});

async function folder(t: ExecutionContext): Promise<string> {
  const path = await makeScratch('hosts');
  t.teardown(() => rm(path, { recursive: true }));
  return join(path, 'hosts');
}

test('files are changed in place, for every namespace, also when they shrink', async (t) => {
  const files = new HostsFiles(await folder(t));
  const demo = await files.fileFor('demo');
  const other = await files.fileFor('other');
  const { ino } = await stat(demo);
  await files.set('Service:demo/api', API);
  t.is(await readFile(demo, 'utf8'), renderHosts('demo', [API]));
  t.is(await readFile(other, 'utf8'), renderHosts('other', [API]));
  await files.set('Service:demo/api', null);
  t.is(await readFile(demo, 'utf8'), renderHosts('demo', []));
  t.is((await stat(demo)).ino, ino, 'the bind mounts of pods hold this file');
  t.deepEqual(files.keys(), []);
});

test('a write that failed is told, and made good by the next', async (t) => {
  const directory = await folder(t);
  const files = new HostsFiles(directory);
  const demo = await files.fileFor('demo');
  await rm(demo);
  await mkdir(demo);
  await t.throwsAsync(files.set('Service:demo/api', API), { code: 'EISDIR' });
  await rm(demo, { recursive: true });
  await files.set('Service:demo/api', API);
  t.is(await readFile(demo, 'utf8'), renderHosts('demo', [API]));
});
