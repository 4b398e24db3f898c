/** Tests a plain `node:http2` client against a real listener. */
import { createHash } from 'node:crypto';
import type { CertificateFiles, PeerMesh } from './support/peer-mesh.ts';
import { peerSuite } from './support/suite.ts';
import type { ClientOptions, Task, TaskResult } from './support/http2-client.ts';

const CLIENT = new URL('support/http2-client.ts', import.meta.url).pathname;
const MIB = 1_048_576;

interface Outcome {
  readonly broken: string | null;
  readonly results: readonly TaskResult[];
}

async function ask(
  peer: PeerMesh,
  pod: string,
  files: CertificateFiles | null,
  tasks: readonly Task[],
): Promise<Outcome> {
  const options: ClientOptions = {
    url: `https://${await peer.address(pod)}:15008`,
    cert: files?.cert ?? null,
    key: files?.key ?? null,
    tasks,
  };
  const args = [CLIENT, JSON.stringify(options)];
  const { stdout, stderr } = await peer.run('node-1', '', process.execPath, ...args);
  if (stdout === '') throw new Error(`the client said nothing: ${stderr}`);
  return JSON.parse(stdout) as Outcome;
}

const get = (path: string): string =>
  `GET ${path} HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n`;

peerSuite('node:http2', null, (test) => {
  test('a hundred streams of one session are answered', async (t, peer) => {
    const authority = `${await peer.address('api-1')}:8080`;
    const tasks = Array.from({ length: 100 }, () => ({ authority, text: get('/') }));
    const files = await peer.certificate('ns/demo/sa/client');
    const { results } = await ask(peer, 'api-1', files, tasks);
    t.deepEqual([...new Set(results.map(({ status }) => status))], [200]);
    t.true(results.every(({ start }) => start.startsWith('HTTP/1.1 200')));
  });

  test('bytes arrive whole both ways', async (t, peer) => {
    const authority = `${await peer.address('api-1')}:8080`;
    const size = 16 * MIB;
    const post = `POST /sink HTTP/1.1\r\nHost: app\r\nContent-Length: ${size}\r\nConnection: close\r\n\r\n`;
    const files = await peer.certificate('ns/demo/sa/client');
    const { results } = await ask(peer, 'api-1', files, [
      { authority, text: get(`/bytes/${size}`) },
      { authority, text: post, zeros: size },
    ]);
    t.true((results[0]?.bytes ?? 0) > size);
    const sent = createHash('sha256').update(Buffer.alloc(size)).digest('hex');
    t.true(results[1]?.start.includes(sent));
  });

  test('a half-closed stream is answered in full', async (t, peer) => {
    const authority = `${await peer.address('db')}:5432`;
    const files = await peer.certificate('ns/demo/sa/client');
    const { results } = await ask(peer, 'db', files, [
      { authority, text: 'PING\nPING\nlast\n', halfClose: true },
    ]);
    t.regex(
      results[0]?.start ?? '',
      /^\+READY.*\n\+PONG\n\+PONG\n\+OK last\n$/,
      JSON.stringify(results),
    );
  });

  test('other methods, unknown targets and silent ports are refused, each alone', async (t, peer) => {
    const own = await peer.address('api-1');
    const files = await peer.certificate('ns/demo/sa/client');
    const { broken, results } = await ask(peer, 'api-1', files, [
      { authority: `${own}:8080`, text: '', method: 'GET' },
      { authority: '192.0.2.1:80', text: '' },
      { authority: `${own}:9`, text: '' },
      { authority: `${own}:8080`, text: get('/') },
    ]);
    t.is(broken, null);
    t.deepEqual(
      results.map(({ status }) => status),
      [400, 400, 503, 200],
    );
  });

  test('a reset stream leaves the others alone', async (t, peer) => {
    const authority = `${await peer.address('api-1')}:8080`;
    const files = await peer.certificate('ns/demo/sa/client');
    const { broken, results } = await ask(peer, 'api-1', files, [
      { authority, text: get(`/bytes/${64 * MIB}`), reset: true },
      { authority, text: get(`/bytes/${MIB}`) },
    ]);
    t.is(broken, null);
    t.true((results[0]?.bytes ?? 0) < 64 * MIB);
    t.true((results[1]?.bytes ?? 0) > MIB);
  });

  test('no certificate means no tunnel', async (t, peer) => {
    const authority = `${await peer.address('api-1')}:8080`;
    const { results } = await ask(peer, 'api-1', null, [{ authority, text: get('/') }]);
    t.is(results[0]?.status, null);
  });
});
