/** Tests where the trust domain of issued identities comes from. */
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { TrustDomain } from '../../../services/ca/trust-domain.ts';
import { capturedLog } from '../../support/bus.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { makeScratch } from '../../support/leftovers.ts';

test('a ConfigMap overrides the environment; a bad one changes nothing; without one the environment counts', (t) => {
  const { log, lines } = capturedLog();
  const options = { trustDomain: 'cluster.local', meshConfig: null };
  const domain = new TrustDomain(options, { clock: new FakeClock(), log });
  t.is(domain.current, 'cluster.local');
  domain.take('the map', 'trustDomain: one.example');
  t.is(domain.current, 'one.example');
  domain.take('the map', 'trustDomain: one/example');
  t.is(domain.current, 'one.example');
  t.regex(String(lines.at(-1)?.['error']), /the map, trustDomain: must consist of/);
  domain.take('the map', 'enableTracing: true');
  t.is(domain.current, 'cluster.local');
  domain.take('the map', 'trustDomain: two.example');
  domain.take('the map', null);
  t.is(domain.current, 'cluster.local');
});

test('a file goes before the ConfigMap, and must be usable at the start', async (t) => {
  const { log } = capturedLog();
  const folder = await makeScratch('trust-domain');
  t.teardown(() => rm(folder, { recursive: true }));
  const meshConfig = join(folder, 'mesh.yaml');
  const options = { trustDomain: 'cluster.local', meshConfig };
  const domain = new TrustDomain(options, { clock: new FakeClock(), log });
  t.teardown(() => domain.close());
  await t.throwsAsync(() => domain.start(), { code: 'ENOENT' });
  await writeFile(meshConfig, 'trustDomain: ""');
  await t.throwsAsync(() => domain.start(), { message: /mesh\.yaml, trustDomain: / });
  await writeFile(meshConfig, 'trustDomain: file.example');
  await domain.start();
  domain.take('the map', 'trustDomain: map.example');
  t.is(domain.current, 'file.example');
});
