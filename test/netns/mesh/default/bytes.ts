import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { patternBytes } from '../../../../services/local-mesh/sample-protocols.ts';
import { until } from '../../../support/until.ts';
import { test } from './mesh.ts';

const GIB = 1024 ** 3;

test('a protocol whose server speaks first gets its greeting before the client says anything', async (t, mesh) => {
  const answer = await mesh.exec(
    'demo/client',
    'bash',
    '-c',
    'exec 3<>/dev/tcp/db/5432; IFS= read -r -t 10 line <&3; echo "$line"',
  );
  t.is(answer.code, 0, answer.stderr);
  t.true(answer.stdout.trim().length > 0);
});

test('a client that closes its sending half still gets the whole answer', async (t, mesh) => {
  const program = `
    const { connect } = require('node:net');
    const socket = connect({ host: process.argv[1], port: 8080, allowHalfOpen: true });
    socket.end('GET /bytes/3000000 HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n');
    let total = 0;
    socket.on('data', (chunk) => (total += chunk.length));
    socket.on('end', () => console.log(total));
  `;
  const api = await mesh.pod('demo', 'api-1');
  const answer = await mesh.exec('demo/client', process.execPath, '-e', program, api.ip);
  t.true(Number(answer.stdout) > 3_000_000, answer.stderr);
});

test('1 GiB arrives intact in both directions', async (t, mesh) => {
  t.timeout(800_000);
  const random = 'openssl enc -aes-256-ctr -K $(openssl rand -hex 32) -iv $(openssl rand -hex 16)';
  const sent = await mesh.exec(
    'demo/client',
    'bash',
    '-c',
    `set -o pipefail; head -c ${GIB} /dev/zero | ${random} | tee >(openssl dgst -sha256 -r >&2) | curl -sS --max-time 250 -T - -X POST http://api/sink`,
  );
  t.is(sent.code, 0, sent.stderr);
  const sum = /[0-9a-f]{64}/.exec(sent.stderr)?.[0] ?? 'none';
  t.true(sent.stdout.includes(sum), `server saw ${sent.stdout}, client sent ${sum}`);
  t.true(sent.stdout.includes(String(GIB)));

  const received = await mesh.exec(
    'demo/client',
    'bash',
    '-c',
    `curl -sS --max-time 250 http://api/bytes/${GIB} | tee >(wc -c >&2) | openssl dgst -sha256 -r`,
  );
  t.is(Number(/\d+/.exec(received.stderr)?.[0]), GIB);
  const pattern = createHash('sha256');
  for (const part of patternBytes(GIB)) pattern.update(part);
  t.true(received.stdout.startsWith(pattern.digest('hex')), received.stdout);
});

test('a reader that stalls for 30 s does not make the proxies grow beyond the windows', async (t, mesh) => {
  const pids = [
    (await mesh.actor('node-proxy', 'node-1')).pid,
    (await mesh.actor('node-proxy', 'node-2')).pid,
  ];
  const resident = async (pid: number): Promise<number> => {
    const status = await readFile(`/proc/${pid}/status`, 'utf8');
    return Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1]) * 1024;
  };
  const before = await Promise.all(pids.map(resident));
  // Reads the head of the answer, then nothing for 30 s, then the rest.
  const program = `
    const { connect } = require('node:net');
    const socket = connect({ host: process.argv[1], port: 8080 });
    socket.write('GET /bytes/${GIB / 2} HTTP/1.0\\r\\n\\r\\n');
    let total = 0;
    socket.once('data', (chunk) => {
      total += chunk.length;
      socket.pause();
      console.log('stalled');
      setTimeout(() => socket.resume(), 30_000);
      socket.on('data', (more) => (total += more.length));
    });
    socket.on('end', () => console.log('total', total));
  `;
  const api = await mesh.pod('demo', 'api-1');
  const reader = mesh.background('demo/client', process.execPath, '-e', program, api.ip);
  await until(() => reader.output().includes('stalled'), { what: 'the reader to stall' });
  const start = performance.now();
  let peak = [0, 0];
  await until(
    async () => {
      const now = await Promise.all(pids.map(resident));
      peak = peak.map((value, index) => Math.max(value, now[index] ?? 0));
      return performance.now() - start > 25_000;
    },
    { what: 'the stall to be watched', timeoutMs: 60_000 },
  );
  // Stream window 4 MiB, connection window 16 MiB, socket buffers and slack of the heap.
  const allowed = 64 * 1024 ** 2;
  for (const [index, value] of peak.entries()) {
    t.true(
      value - (before[index] ?? 0) < allowed,
      `node-${index + 1} grew by ${value - (before[index] ?? 0)}`,
    );
  }
  const outcome = await reader.exit;
  t.true(Number(/total (\d+)/.exec(outcome.stdout)?.[1]) > GIB / 2);
});

test('another connection of the same tunnel is not held up by a stalled one', async (t, mesh) => {
  const api = await mesh.pod('demo', 'api-1');
  const stall = `
    const { connect } = require('node:net');
    const socket = connect({ host: process.argv[1], port: 8080 });
    socket.write('GET /bytes/${GIB / 8} HTTP/1.0\\r\\n\\r\\n');
    socket.once('data', () => { socket.pause(); console.log('stalled'); setInterval(() => {}, 1000); });
  `;
  const stalled = mesh.background('demo/client', process.execPath, '-e', stall, api.ip);
  await until(() => stalled.output().includes('stalled'), { what: 'the reader to stall' });
  for (let round = 0; round < 5; round += 1) {
    const answer = await mesh.curl(
      'demo/client',
      '-o',
      '/dev/null',
      '-w',
      '%{size_download}',
      `http://${api.ip}:8080/bytes/1000000`,
    );
    t.is(answer.stdout, '1000000', answer.stderr);
  }
  stalled.kill();
  await stalled.exit;
});

test('a slow download outlives `weft upgrade node-proxy`, and the command says what drains', async (t, mesh) => {
  const bytes = GIB / 8;
  // Reads the head of the answer, and the rest on demand.
  const program = `
    const { connect } = require('node:net');
    const socket = connect({ host: process.argv[1], port: 8080 });
    socket.write('GET /bytes/${bytes} HTTP/1.0\\r\\n\\r\\n');
    let total = 0;
    socket.once('data', (chunk) => {
      total += chunk.length;
      socket.pause();
      console.log('stalled');
      process.stdin.once('data', () => socket.resume());
      socket.on('data', (more) => (total += more.length));
    });
    socket.on('error', (error) => console.log('broken', error.code, total));
    socket.on('close', () => { console.log('total', total); process.exit(); });
  `;
  const api = await mesh.pod('demo', 'api-1');
  const reader = mesh.inNetns('demo-client', process.execPath, '-e', program, api.ip);
  await until(() => reader.output().includes('stalled'), { what: 'the reader to stall' });
  const upgraded = await mesh.weft('upgrade', 'node-proxy');
  t.is(upgraded.code, 0, upgraded.stderr);
  for (const node of ['node-1', 'node-2']) {
    const line = new RegExp(`^${node}/.* drains 1 connection without a time limit$`, 'm');
    t.regex(upgraded.stdout, line);
  }
  const retiring = async (): Promise<readonly number[]> =>
    (await mesh.actors()).filter((one) => one.retiring).map(({ uptimeSeconds }) => uptimeSeconds);
  const before = await retiring();
  t.is(before.length, 2);
  // Past the deadline that a signal sets for a proxy.
  await until(
    async () => {
      const now = await retiring();
      if (now.length < 2) return true;
      return now.every((seconds, index) => seconds > (before[index] ?? 0) + 6);
    },
    { what: 'the drain to go on', timeoutMs: 60_000 },
  );
  t.is((await retiring()).length, 2, reader.output());
  reader.stdin.write('go\n');
  const { stdout } = await reader.exit;
  t.notRegex(stdout, /broken/);
  t.true(Number(/total (\d+)/.exec(stdout)?.[1]) > bytes, stdout);
  await until(async () => (await retiring()).length === 0, { what: 'the old proxies to end' });
});
