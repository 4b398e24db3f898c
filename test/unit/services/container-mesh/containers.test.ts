/** Tests the decisions about a mesh of containers that need no engine. */
import test from 'ava';
import { environmentOf, groupOf } from '../../../../services/container-mesh/container-actors.ts';
import type { ContainerDetails } from '../../../../lib/docker/engine-view.ts';
import { containerEnv, givenFiles } from '../../../../services/container-mesh/own-files.ts';
import { replacementOf } from '../../../../services/container-mesh/replacement.ts';
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
    Created: '2026-01-01T00:00:00Z',
    Image: 'sha256:1',
    RestartCount: 0,
    State: { Running: true, Pid: 7, StartedAt: '2026-01-01T00:00:00Z', Error: '' },
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

test('a variable that Compose names without a value is not set', (t) => {
  const named = proxy({
    Config: { Labels: null, Env: ['CONNECTION_TERMINATION_DEADLINE', 'A=b=c'] },
  });
  t.deepEqual(environmentOf(named), { A: 'b=c' });
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
