/** Tests an unmodified ztunnel as the proxy of one node, on Weft's control plane, CA and node agent. */
import { processEnvironment } from '../../lib/config/env.ts';
import { until } from '../support/until.ts';
import type { PeerMesh } from './support/peer-mesh.ts';
import { peerSuite } from './support/suite.ts';

/** The node whose proxy it is. */
const NODE = 'node-2';
const program = processEnvironment()['WEFT_ZTUNNEL'];

const DENY = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: { name: no-clients, namespace: demo }
spec:
  action: DENY
  selector: { matchLabels: { app: api } }
  rules: [{ from: [{ source: { principals: [cluster.local/ns/demo/sa/client] } }] }]
`;

/** Starts it with the environment of the node's proxy. */
async function join({ mesh }: PeerMesh): Promise<void> {
  const { stdout, stderr, code } = await mesh.weft('env', `${NODE}/node-proxy`);
  if (code !== 0) throw new Error(stderr);
  const script = `${stdout}\nexec nsenter --net=${mesh.netns(NODE)} ${program}`;
  mesh.start('sh', ['-c', script]);
  await until(async () => (await mesh.json<{ ready: boolean }>('status')).ready, {
    what: 'the mesh with it to be ready',
  });
  // `ready` tells of enrolments; that others send HBONE to them, and it to others, comes with the next change of the state.
  const { ip } = await mesh.pod('demo', 'api-1');
  for (const [from, url] of [
    ['demo/client', `http://${ip}:8080/`],
    ['demo/api-1', 'http://web.demo/'],
  ] as const) {
    await until(async () => (await mesh.curl(from, url)).code === 0, {
      what: `the first answer from ${url}`,
    });
  }
}

peerSuite(
  'ztunnel',
  program === undefined ? 'WEFT_ZTUNNEL names no ztunnel' : null,
  (test) => {
    test('its pods are reached, with their identity, over HBONE', async (t, { mesh }) => {
      const { ip } = await mesh.pod('demo', 'api-1');
      const { code, stdout, stderr } = await mesh.curl('demo/client', `http://${ip}:8080/`);
      t.is(code, 0, stderr);
      t.regex(stdout, /"name":"api-1"/);
      const line = await until(
        async () =>
          (await mesh.log('node-proxy', 'node-1')).find(
            (one) => one['scope'] === 'access' && String(one['dst.addr']).startsWith(`${ip}:`),
          ),
        { what: 'the access line of the connection' },
      );
      t.is(line['dst.identity'], 'spiffe://cluster.local/ns/demo/sa/api');
    });

    test('its pods reach others, by service and by address', async (t, { mesh }) => {
      const { ip } = await mesh.pod('demo', 'web-1');
      for (const url of ['http://web.demo/', `http://${ip}:8080/`]) {
        const { code, stdout, stderr } = await mesh.curl('demo/api-1', url);
        t.is(code, 0, stderr);
        t.regex(stdout, /"name":"web-/);
      }
      const line = await until(
        async () =>
          (await mesh.log('node-proxy', 'node-1')).find(
            (one) =>
              one['scope'] === 'access' &&
              one['direction'] === 'inbound' &&
              one['src.identity'] === 'spiffe://cluster.local/ns/demo/sa/api',
          ),
        { what: 'the access line of the other side' },
      );
      t.truthy(line);
    });

    test('it enforces a policy of the control plane', async (t, { mesh }) => {
      const url = `http://${(await mesh.pod('demo', 'api-1')).ip}:8080/`;
      const outcome = await mesh.apply(DENY);
      t.is(outcome.code, 0, outcome.stderr);
      await until(async () => (await mesh.curl('demo/client', url)).code !== 0, {
        what: 'the refusal',
      });
      t.is((await mesh.curl('demo/web-1', url)).code, 0, 'others are let in');
      await mesh.delete(DENY);
      await until(async () => (await mesh.curl('demo/client', url)).code === 0, {
        what: 'the end of the refusal',
      });
    });
  },
  join,
  { arguments: ['--external', `${NODE}/node-proxy`], wait: false },
);
