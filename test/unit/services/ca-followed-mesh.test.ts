/** Tests where the CA takes the settings of the mesh from. */
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { FollowedMesh } from '../../../services/ca/followed-mesh.ts';
import { capturedLog } from '../../support/bus.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { makeScratch } from '../../support/leftovers.ts';

test('a ConfigMap overrides the environment; a bad one changes nothing; without one the environment counts', (t) => {
  const { log, lines } = capturedLog();
  const options = { trustDomain: 'cluster.local', meshConfig: null };
  const mesh = new FollowedMesh(options, { clock: new FakeClock(), log });
  t.is(mesh.current.trustDomain, 'cluster.local');
  mesh.take('the map', 'trustDomain: one.example');
  t.is(mesh.current.trustDomain, 'one.example');
  mesh.take('the map', 'trustDomain: one/example');
  t.is(mesh.current.trustDomain, 'one.example');
  t.regex(String(lines.at(-1)?.['error']), /the map, trustDomain: must consist of/);
  mesh.take('the map', 'enableTracing: true');
  t.is(mesh.current.trustDomain, 'cluster.local');
  mesh.take('the map', 'trustDomain: two.example');
  mesh.take('the map', null);
  t.is(mesh.current.trustDomain, 'cluster.local');
});

test('a file goes before the ConfigMap, and must be usable at the start', async (t) => {
  const { log } = capturedLog();
  const folder = await makeScratch('mesh');
  t.teardown(() => rm(folder, { recursive: true }));
  const meshConfig = join(folder, 'mesh.yaml');
  const options = { trustDomain: 'cluster.local', meshConfig };
  const mesh = new FollowedMesh(options, { clock: new FakeClock(), log });
  t.teardown(() => mesh.close());
  await t.throwsAsync(() => mesh.start(), { code: 'ENOENT' });
  await writeFile(meshConfig, 'trustDomain: ""');
  await t.throwsAsync(() => mesh.start(), { message: /mesh\.yaml, trustDomain: / });
  await writeFile(meshConfig, 'trustDomain: file.example');
  await mesh.start();
  mesh.take('the map', 'trustDomain: map.example');
  t.is(mesh.current.trustDomain, 'file.example');
});

test('aliases, root namespace and discovery selectors are followed, and each change is told once', (t) => {
  const { log, lines } = capturedLog();
  const options = { trustDomain: 'old.example', meshConfig: null };
  const mesh = new FollowedMesh(options, { clock: new FakeClock(), log });
  let changes = 0;
  const unfollow = mesh.onChange(() => (changes += 1));
  const effects = (): unknown[] =>
    lines
      .filter(({ message }) => message === 'trust-domain.changed')
      .map((line) => /former one are (\w+)/.exec(String(line['effect']))?.[1]);
  mesh.take('the map', '{trustDomain: new.example, trustDomainAliases: [old.example]}');
  t.deepEqual(mesh.current, {
    trustDomain: 'new.example',
    trustDomainAliases: ['old.example'],
    rootNamespace: null,
    discoverySelectors: [],
  });
  t.deepEqual(effects(), ['signed']);
  mesh.take('the map', '{trustDomain: other.example, discoverySelectors: [{matchLabels: {a: b}}]}');
  t.deepEqual(mesh.current.discoverySelectors, [{ matchLabels: { a: 'b' } }]);
  t.deepEqual(effects().slice(1), ['refused']);
  t.is(changes, 2);
  mesh.take('the map', '{discoverySelectors: [{matchLabels: {a: b}}], trustDomain: other.example}');
  t.is(changes, 2, 'the same settings in another text');
  mesh.take('the map', 'discoverySelectors: [{matchLabels: {a: 1}}]');
  t.regex(String(lines.at(-1)?.['error']), /the map, discoverySelectors\.0\.matchLabels\.a: /);
  t.is(changes, 2);
  mesh.take('the map', 'rootNamespace: roots');
  t.is(mesh.current.rootNamespace, 'roots');
  unfollow();
  mesh.take('the map', null);
  t.is(changes, 3);
});
