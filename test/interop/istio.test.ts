/** Tests Istio's own HBONE library in Go, as a client of Weft's listeners and as a server that Weft dials. */
import { createHash } from 'node:crypto';
import { until } from '../support/until.ts';
import { goProgram } from './support/go.ts';
import type { GoProgram } from './support/go.ts';
import type { PeerMesh, ProgramResult } from './support/peer-mesh.ts';
import { peerSuite } from './support/suite.ts';
import { skipReason } from '../support/netns-test.ts';

const APP = new URL('support/app.ts', import.meta.url).pathname;
const MIB = 1_048_576;
/** The second node's own address, with Istio's server and an application. */
/** An address of the control namespace, where no part of the mesh speaks HBONE. */
const HOST = '10.200.0.3';
/** The route to the pods of node-1. */
const PODS = ['10.128.16.0/20', 'via', '10.200.0.11'];
const HTTP_PORT = 9_080;
const GREETING_PORT = 9_432;

const program: GoProgram = skipReason === null ? await goProgram('istio') : { missing: skipReason };
const path = 'path' in program ? program.path : '';

/** A workload that speaks HBONE, at the address where Istio's server listens. */
const ENTRY = `
apiVersion: v1
kind: Namespace
metadata: { name: go }
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata:
  name: go
  namespace: go
  labels: { app: go, networking.istio.io/tunnel: http }
spec: { address: ${HOST}, serviceAccount: go }
`;

async function dial(
  peer: PeerMesh,
  pod: string,
  port: number,
  input: string,
): Promise<ProgramResult> {
  const { cert, key, roots } = await peer.certificate('ns/demo/sa/client');
  const ip = await peer.address(pod);
  const files = ['-cert', cert, '-key', key, '-roots', roots];
  const args = ['dial', '-proxy', `${ip}:15008`, '-to', `${ip}:${port}`, ...files];
  return peer.run('node-1', input, path, ...args);
}

async function serve(peer: PeerMesh, account = 'ns/go/sa/go'): Promise<void> {
  const { mesh } = peer;
  await mesh.inNetns('ctl', 'ip', 'route', 'replace', ...PODS).exit;
  const app = mesh.inNetns('ctl', process.execPath, APP, `${HTTP_PORT}`, `${GREETING_PORT}`);
  const { cert, key, roots } = await peer.certificate(account, ['go.invalid']);
  const files = ['-cert', cert, '-key', key, '-roots', roots];
  const server = mesh.inNetns('ctl', path, 'serve', '-listen', `${HOST}:15008`, ...files);
  const both = (): boolean => app.output() !== '' && server.output() !== '';
  await until(both, { what: "Istio's server to listen", timeoutMs: 20_000 });
  const { code, stderr } = await mesh.apply(ENTRY);
  if (code !== 0) throw new Error(stderr);
  await until(
    async () => {
      const list = await mesh.json<{ name: string }[]>('get', 'workloads');
      return list.some(({ name }) => name === 'go');
    },
    { what: 'the workload to be known', timeoutMs: 20_000 },
  );
}

const get = (target: string): string =>
  `GET ${target} HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n`;

peerSuite(
  'istio',
  'missing' in program ? program.missing : null,
  (test) => {
    test("Istio's client gets an answer", async (t, peer) => {
      const { code, stdout, stderr } = await dial(peer, 'api-1', 8080, get('/'));
      t.is(code, 0, stderr);
      t.regex(stdout, /^HTTP\/1\.1 200[^]*"name":"api-1"/);
    });

    test("Istio's client gets every byte", async (t, peer) => {
      const { code, stdout, stderr } = await dial(peer, 'api-1', 8080, get(`/bytes/${8 * MIB}`));
      t.is(code, 0, stderr);
      t.true(stdout.length > 7 * MIB, `${stdout.length}`);
    });

    test("a server that speaks first is heard by Istio's client, and ends the connection", async (t, peer) => {
      const { code, stdout, stderr } = await dial(peer, 'db', 5432, 'PING\nlast\nQUIT\n');
      t.is(code, 0, stderr);
      t.regex(stdout, /^\+READY.*\n\+PONG\n\+OK last\n/);
    });

    test("what Weft refuses, Istio's client is told", async (t, peer) => {
      const { code, stderr } = await dial(peer, 'api-1', 9, get('/'));
      t.is(code, 1);
      t.regex(stderr, /round trip failed: 503/);
    });

    test("Weft reaches an application behind Istio's server", async (t, peer) => {
      const url = `http://${HOST}:${HTTP_PORT}`;
      const { code, stdout, stderr } = await peer.mesh.curl('demo/client', `${url}/`);
      t.is(code, 0, stderr);
      t.regex(stdout, /"name":"app"/);
      const line = await until(
        async () =>
          (await peer.mesh.log('node-proxy', 'node-1')).find(
            (one) => one['scope'] === 'access' && String(one['dst.addr']).startsWith(HOST),
          ),
        { what: 'the access line of the connection' },
      );
      t.is(line['dst.hbone_addr'], `${HOST}:${HTTP_PORT}`);
      t.is(line['dst.identity'], 'spiffe://cluster.local/ns/go/sa/go');
    });

    test("bytes arrive whole on both ways through Istio's server", async (t, peer) => {
      const url = `http://${HOST}:${HTTP_PORT}`;
      const size = 8 * MIB;
      const upload = ['sh', '-c', `head -c ${size} /dev/zero | curl -sS -m 30 -T - ${url}/sink`];
      const up = await peer.mesh.exec('demo/client', ...upload);
      t.true(up.stdout.includes(createHash('sha256').update(Buffer.alloc(size)).digest('hex')));
      const count = `curl -sS -m 30 ${url}/bytes/${size} | wc -c`;
      const down = await peer.mesh.exec('demo/client', 'sh', '-c', count);
      t.is(down.stdout.trim(), String(size));
    });

    test("a half-closed connection is answered in full through Istio's server", async (t, peer) => {
      const script = `const s=require('net').connect({host:'${HOST}',port:${GREETING_PORT},allowHalfOpen:true});
        s.end('PING\\nlast\\n');s.pipe(process.stdout);setTimeout(()=>process.exit(1),10000).unref();`;
      const command = [process.execPath, '-e', script];
      const { stdout } = await peer.mesh.exec('demo/client', ...command);
      t.regex(stdout, /^\+READY.*\n\+PONG\n\+OK last\n/);
    });

    test("a port that Istio's server cannot reach ends the connection", async (t, peer) => {
      const { code } = await peer.mesh.curl('demo/client', `http://${HOST}:9/`);
      t.not(code, 0);
    });
  },
  serve,
);
