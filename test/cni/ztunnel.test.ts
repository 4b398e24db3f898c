/** An unmodified ztunnel as the proxy of a node whose pods Weft's agent and plugin bring into the mesh. */
import { spawn } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { processEnvironment } from '../../lib/config/env.ts';
import { captureWhile } from '../support/capture.ts';
import { makeScratch } from '../support/leftovers.ts';
import { netnsTest } from '../support/netns-test.ts';
import { killed, spawnAgent } from '../support/node-agent-kit.ts';
import { until } from '../support/until.ts';
import { AMBIENT, BRIDGE, POD_PREFIX, addWhenReady, cniNode } from './support/node.ts';
import type { CniNode } from './support/node.ts';
import { cniPrograms } from './support/programs.ts';

const APP_PORT = 8080;
const PODS = ['client', 'server'] as const;
const ADDRESSES = { client: `${POD_PREFIX}.2`, server: `${POD_PREFIX}.3` } as const;
const SERVER = `require('node:http').createServer((_, answer) => answer.end('plain words')).listen(${APP_PORT})`;

const program = processEnvironment()['WEFT_ZTUNNEL'];
const programs = await cniPrograms();
const missing =
  program === undefined
    ? 'WEFT_ZTUNNEL names no ztunnel'
    : 'missing' in programs
      ? programs.missing
      : null;
if (missing !== null) process.stdout.write(`SKIPPED cni: ztunnel: ${missing}\n`);

/** Starts it in the node's network, with the pods as its whole mesh and certificates of its own making. */
async function startZtunnel(t: ExecutionContext, { host, site }: CniNode): Promise<void> {
  const folder = await makeScratch('ztunnel');
  t.teardown(() => rm(folder, { recursive: true }));
  const mesh = join(folder, 'mesh.yaml');
  const workloads = PODS.map(
    (name) =>
      `- {uid: local/${name}, name: ${name}, namespace: demo, serviceAccount: default, trustDomain: cluster.local,
   workloadIps: [${ADDRESSES[name]}], protocol: HBONE, node: node-1, services: {}}`,
  );
  await writeFile(mesh, ['workloads:', ...workloads].join('\n'));
  const child = spawn('nsenter', [`--net=${host.path}`, program ?? ''], {
    env: {
      NODE_NAME: 'node-1',
      XDS_ADDRESS: '',
      LOCAL_XDS_PATH: mesh,
      FAKE_CA: 'true',
      INPOD_UDS: site.socket,
    },
    stdio: 'ignore',
  });
  t.teardown(() => killed(child));
}

const title = "an unmodified ztunnel carries the pods of Weft's plugin over HBONE";
if (missing !== null || 'missing' in programs) test.skip(`${title}: ${missing}`, (t) => t.pass());
else {
  netnsTest(title, async (t) => {
    const node = await cniNode(t, programs);
    spawnAgent(t, node.site);
    await startZtunnel(t, node);
    await node.installed();
    const [client, server] = [await node.pod('client', AMBIENT), await node.pod('server', AMBIENT)];
    await addWhenReady(node, 'demo/client', client, { address: ADDRESSES.client });
    await addWhenReady(node, 'demo/server', server, { address: ADDRESSES.server });
    t.regex(await client.exec('ip', 'addr'), new RegExp(`${ADDRESSES.client}/`));
    for (const pod of [client, server]) {
      const listeners = await pod.exec('ss', '-Hltn');
      for (const port of [15_001, 15_006, 15_008]) t.regex(listeners, new RegExp(`:${port} `));
    }
    server.spawn(process.execPath, ['-e', SERVER], { stdio: 'ignore' });
    const ask = (): Promise<string> =>
      client.exec('curl', '-sS', '-m', '60', `http://${ADDRESSES.server}:${APP_PORT}/`);
    await until(ask, { what: 'an answer' });
    const link = { netns: node.host.path, device: BRIDGE, filter: 'tcp' };
    const captured = await captureWhile(link, async () => {
      t.is(await ask(), 'plain words');
    });
    t.true(captured.packets.some((line) => line.includes(`${ADDRESSES.server}.15008`)));
    t.false(captured.bytes.includes('plain words'));
  });
}
