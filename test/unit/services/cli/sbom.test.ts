import test from 'ava';
import { sbomOf } from '../../../../services/cli/sbom.ts';

const GRPC = {
  'bom-ref': '@grpc/grpc-js@1.14.7',
  name: '@grpc/grpc-js',
  version: '1.14.7',
  purl: 'pkg:npm/%40grpc/grpc-js@1.14.7',
  properties: [],
  licenses: [{ license: { id: 'Apache-2.0' } }],
  hashes: [{ alg: 'SHA-512', content: '000102' }],
};
const AVA = {
  'bom-ref': 'ava@8.0.1',
  purl: 'pkg:npm/ava@8.0.1',
  properties: [{ name: 'cdx:npm:package:development', value: 'true' }],
};
const NPM = {
  bomFormat: 'CycloneDX',
  specVersion: '1.5',
  serialNumber: 'urn:uuid:npm',
  metadata: { tools: [{ name: 'cli' }], component: { name: 'folder' } },
  components: [GRPC, AVA],
  dependencies: [
    { ref: 'weft@1.2.3', dependsOn: ['@grpc/grpc-js@1.14.7', 'ava@8.0.1'] },
    { ref: 'ava@8.0.1', dependsOn: [] },
  ],
};
const INPUT = {
  name: 'weft',
  version: '1.2.3',
  timestamp: '2026-01-01T00:00:00.000Z',
  serial: '00000000-0000-0000-0000-000000000000',
  npm: JSON.stringify(NPM),
  dpkg: null,
  bundled: {},
};

test('the list of parts names npm packages, what Node brings, and Debian packages; not what was left out', (t) => {
  const document = sbomOf({
    ...INPUT,
    dpkg: [
      'Package: libatomic1\nStatus: install ok installed\nArchitecture: amd64\nVersion: 12.2.0-14+deb12u1',
      'Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1',
    ].join('\n\n'),
    bundled: { node: '26.10.0', openssl: '3.5.1', modules: '147' },
  });
  t.is(document['specVersion'], '1.5');
  t.is(document['serialNumber'], 'urn:uuid:00000000-0000-0000-0000-000000000000');
  t.like(document['metadata'], {
    timestamp: INPUT.timestamp,
    tools: [{ name: 'cli' }],
    component: { type: 'application', name: 'weft', version: '1.2.3', 'bom-ref': 'weft@1.2.3' },
  });
  const components = document['components'] as { purl: string }[];
  t.deepEqual(
    components.map(({ purl }) => purl),
    [
      'pkg:deb/debian/libatomic1@12.2.0-14%2Bdeb12u1?arch=amd64',
      'pkg:generic/node@26.10.0',
      'pkg:generic/openssl@3.5.1',
      'pkg:npm/%40grpc/grpc-js@1.14.7',
    ],
  );
  t.deepEqual(components.at(-1), GRPC, 'as npm has it');
  t.deepEqual(document['dependencies'], [
    { ref: 'weft@1.2.3', dependsOn: ['@grpc/grpc-js@1.14.7'] },
  ]);
});

test('what npm did not write is refused', (t) => {
  for (const npm of ['{}', 'npm ERR!', '[]']) {
    t.throws(() => sbomOf({ ...INPUT, npm }), { message: /npm's part is no CycloneDX document/ });
  }
});
