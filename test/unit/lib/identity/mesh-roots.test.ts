import { X509Certificate } from 'node:crypto';
import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { rootCertificates } from 'node:tls';
import test from 'ava';
import { systemClock } from '../../../../lib/clock/clock.ts';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { meshBundle, meshRoots } from '../../../../lib/identity/mesh-roots.ts';
import type { TrustBundle } from '../../../../lib/identity/trust-bundle.ts';
import { createRoot } from '../../../../lib/identity/x509.ts';
import { certFetcherConfig } from '../../../../services/cert-fetcher/config.ts';
import { nodeProxyConfig } from '../../../../services/node-proxy/config.ts';
import { keptLog } from '../../../support/actor-context.ts';
import { makeScratch } from '../../../support/leftovers.ts';
import { until } from '../../../support/until.ts';

const MOUNTED = { kind: 'file', path: './var/run/secrets/istio/root-cert.pem' } as const;
const PUBLIC = rootCertificates[0] ?? '';

async function root(name: string): Promise<string> {
  const now = Date.now();
  return (await createRoot(name, now - 1_000, now + 3_600_000)).certificatePem;
}

test("the mesh's roots are those of the CA's server unless others are named", async (t) => {
  const pem = await root('mesh');
  const from = (ca: string, mesh: string | null = null) =>
    meshRoots({ CA_ROOT_CA: ca, WEFT_MESH_ROOT_CA: mesh });
  t.deepEqual(from('/roots.pem'), { kind: 'file', path: '/roots.pem' });
  t.deepEqual(from(pem), { kind: 'pem', pem });
  t.deepEqual(from('/ca.pem', '/mesh.pem'), { kind: 'file', path: '/mesh.pem' });
  t.deepEqual(from('SYSTEM', pem), { kind: 'pem', pem });
});

test('with CA_ROOT_CA=SYSTEM the connection to the CA alone is secured by public roots', (t) => {
  const environment = { REDIS_URL: 'unix:///run/redis.sock', CA_ROOT_CA: 'SYSTEM' };
  t.deepEqual(nodeProxyConfig.parse(environment).roots, MOUNTED);
  const fetcher = certFetcherConfig.parse(environment);
  t.deepEqual(fetcher.meshRoots, MOUNTED);
  t.is(fetcher.ca.rootCa, 'SYSTEM');
});

test('settings that would have peers verified against public roots are refused', (t) => {
  for (const [name, value] of [
    ['WEFT_MESH_ROOT_CA', 'SYSTEM'],
    ['WEFT_MESH_ROOT_CA', PUBLIC],
    ['CA_ROOT_CA', PUBLIC],
  ] as const) {
    for (const spec of [nodeProxyConfig, certFetcherConfig]) {
      const error = t.throws(
        () => spec.parse({ REDIS_URL: 'unix:///run/redis.sock', [name]: value }),
        { instanceOf: MeshError },
      );
      t.is(error?.code, 'CONFIG_INVALID');
      t.regex(
        error?.message ?? '',
        /WEFT_MESH_ROOT_CA .*public root|public root.* WEFT_MESH_ROOT_CA/,
      );
    }
  }
});

test('a file with a public root is refused at start, and later keeps the last good roots', async (t) => {
  const dir = await makeScratch('roots');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const path = join(dir, 'root-cert.pem');
  const own = await root('mesh');
  await writeFile(path, own + PUBLIC);
  const bundle = (): TrustBundle => {
    const made = meshBundle(
      { kind: 'file', path },
      { clock: systemClock, log: keptLog('test').log },
    );
    t.teardown(() => made.close());
    return made;
  };
  const refused = bundle();
  const error = await t.throwsAsync(() => refused.start(), { instanceOf: MeshError });
  t.is(error?.code, 'CONFIG_INVALID');
  const { subject } = new X509Certificate(PUBLIC);
  t.true(error?.message.includes(subject.replaceAll('\n', ', ')));
  t.is(refused.current, null);

  await writeFile(path, own);
  const followed = bundle();
  await followed.start();
  await writeFile(`${path}.new`, PUBLIC);
  await rename(`${path}.new`, path);
  await until(() => followed.problem, { what: 'the refusal' });
  t.is(followed.current?.pem, own);
});
