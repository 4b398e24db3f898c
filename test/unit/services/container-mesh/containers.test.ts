/** What a mesh of containers is made of, as far as it is decided without an engine. */
import test from 'ava';
import { groupOf } from '../../../../services/container-mesh/container-actors.ts';
import type { ContainerDetails } from '../../../../services/container-mesh/engine.ts';
import { containerEnv, givenFiles } from '../../../../services/container-mesh/own-files.ts';
import { replacementOf } from '../../../../services/container-mesh/replacement.ts';
import { sbomOf } from '../../../../services/cli/sbom.ts';
import { meshPaths } from '../../../../services/local-mesh/mesh-paths.ts';
import { planMesh } from '../../../../services/local-mesh/topology.ts';

const IMAGE = {
  Env: ['PATH=/bin', 'NODE_COMPILE_CACHE=/old'],
  Entrypoint: ['weft'],
  User: 'weft',
  Labels: { version: '1', title: 'weft' },
};

function proxy(over: Partial<ContainerDetails> = {}): ContainerDetails {
  return {
    Id: '0123456789abcdef',
    Image: 'sha256:1',
    RestartCount: 0,
    State: { Running: true, Pid: 7, StartedAt: '2026-01-01T00:00:00Z' },
    Config: {
      Image: 'weft',
      Hostname: '0123456789ab',
      User: '0:1337',
      Entrypoint: ['weft'],
      Cmd: ['run', 'node-proxy'],
      Env: [...IMAGE.Env, 'NODE_NAME=node-1', 'WEFT_NODE_PROXY_GROUP=3'],
      Labels: { ...IMAGE.Labels, 'com.docker.compose.container-number': '1', own: 'x' },
    },
    HostConfig: { NetworkMode: 'container:feed', ReadonlyRootfs: true },
    NetworkSettings: { Networks: {} },
    ...over,
  };
}

test('a replacement keeps what its service says and takes the rest from the image as it is now', (t) => {
  const old = proxy();
  t.is(groupOf(old), 3);
  t.deepEqual(replacementOf(old, { image: IMAGE, number: 2, group: 4 }), {
    Image: 'weft',
    User: '0:1337',
    Cmd: ['run', 'node-proxy'],
    Env: ['NODE_NAME=node-1', 'WEFT_NODE_PROXY_GROUP=4'],
    Labels: { 'com.docker.compose.container-number': '2', own: 'x' },
    HostConfig: old.HostConfig,
  });
});

test('a replacement has the addresses and names of the old one, but not its id as a name', (t) => {
  const Networks = {
    link: { IPAMConfig: { IPv4Address: '10.0.0.2' }, Aliases: ['ca', '0123456789ab'] },
  };
  const old = proxy({ HostConfig: { NetworkMode: 'link' }, NetworkSettings: { Networks } });
  const body = replacementOf(old, { image: {}, number: 1, group: null });
  t.deepEqual(body['NetworkingConfig'], {
    EndpointsConfig: { link: { IPAMConfig: { IPv4Address: '10.0.0.2' }, Aliases: ['ca'] } },
  });
  t.true((body['Env'] as string[]).includes('WEFT_NODE_PROXY_GROUP=3'));
});

test('a container that names no generation is of the first', (t) => {
  t.is(groupOf(proxy({ Config: { Labels: null } })), 0);
});

test('each role is given the files its environment names, under names of their own', (t) => {
  const plan = planMesh('weft', 1);
  const given = givenFiles(plan, meshPaths('weft', {}));
  const names = (taker: string): string[] =>
    given.filter((one) => one.taker === taker).map(({ name }) => name);
  t.deepEqual(names('ca'), ['jwks.json']);
  t.deepEqual(names('policy-evaluator'), ['redis-password']);
  t.deepEqual(names('node-agent.node-1'), ['redis-password']);
  t.deepEqual(names('node-proxy.node-1'), ['redis-password', 'istio-token']);
  t.deepEqual(names('supervisor'), ['cli']);
  t.false(given.some(({ from }) => from.includes('signing-key')));
  t.deepEqual(containerEnv({ AUTH_TOKEN: '/a/b', OTHER: '/c' }), {
    AUTH_TOKEN: '/run/weft/own/istio-token',
    OTHER: '/c',
  });
});

test('the list of parts names npm packages, what Node brings, and Debian packages; not what was left out', (t) => {
  const document = sbomOf({
    name: 'weft',
    version: '1.2.3',
    timestamp: '2026-01-01T00:00:00.000Z',
    serial: '00000000-0000-0000-0000-000000000000',
    npm: JSON.stringify({
      packages: {
        '': { version: '1.2.3' },
        'node_modules/@grpc/grpc-js': {
          version: '1.14.7',
          license: 'Apache-2.0',
          integrity: 'sha512-AAEC',
        },
        'node_modules/a/node_modules/b': { version: '2.0.0+x' },
        'node_modules/ava': { version: '8.0.1', dev: true },
      },
    }),
    dpkg: [
      'Package: libatomic1\nStatus: install ok installed\nArchitecture: amd64\nVersion: 12.2.0-14+deb12u1',
      'Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1',
    ].join('\n\n'),
    bundled: { node: '26.10.0', openssl: '3.5.1', modules: '147' },
  });
  t.is(document['specVersion'], '1.5');
  const components = document['components'] as { purl: string; 'bom-ref': string }[];
  t.deepEqual(
    components.map(({ purl }) => purl),
    [
      'pkg:deb/debian/libatomic1@12.2.0-14%2Bdeb12u1?arch=amd64',
      'pkg:generic/node@26.10.0',
      'pkg:generic/openssl@3.5.1',
      'pkg:npm/%40grpc/grpc-js@1.14.7',
      'pkg:npm/b@2.0.0%2Bx',
    ],
  );
  const grpc = components.find(({ purl }) => purl.includes('grpc'));
  t.like(grpc, {
    licenses: [{ expression: 'Apache-2.0' }],
    hashes: [{ alg: 'SHA-512', content: '000102' }],
  });
  t.throws(() => sbomOf({ ...INPUT, npm: '{}' }));
});

const INPUT = {
  name: 'weft',
  version: '1',
  timestamp: '',
  serial: '',
  npm: '{"packages":{}}',
  dpkg: null,
  bundled: {},
};
