/**
 * Measures the tunnel engines alone: one process per hop on loopback, without redirection, policy or telemetry.
 * `node test/bench/engine.ts [--seconds N] [--engines carried,http2,tls] [--profile DIR]`; needs iperf3 and wrk. `tls` is a bare node:tls relay
 * pair without HTTP/2, the ceiling of what runs on node:tls.
 */
import { execFile, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { createServer } from '../../lib/http/node-http.ts';
import type { CredentialSource } from '../../lib/hbone/credentials.ts';
import { createTunnelPki } from '../support/tunnel-pki.ts';

const run = promisify(execFile);
const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '3' },
    engines: { type: 'string', default: 'carried,http2,tls' },
    profile: { type: 'string' },
    only: { type: 'string' },
  },
});
const TICKS_PER_SECOND = 100;
const seconds = Number(values.seconds);
const scratch = await mkdtemp(join(tmpdir(), 'weft-engine-'));
const children: ChildProcess[] = [];

/** Starts a program of this folder and waits for its ports. */
async function hop(engine: string, side: 'client' | 'server', settings: object): Promise<number[]> {
  const program = new URL('engine-hop.ts', import.meta.url).pathname;
  const profile =
    values.profile === undefined
      ? []
      : [
          '--cpu-prof',
          `--cpu-prof-dir=${values.profile}`,
          `--cpu-prof-name=${engine}-${side}.cpuprofile`,
        ];
  const child = spawn(
    process.execPath,
    [
      ...profile,
      program,
      engine,
      side,
      JSON.stringify({ keys: join(scratch, 'keys.json'), ...settings }),
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  children.push(child);
  const died = once(child, 'exit').then(() =>
    Promise.reject(new Error(`${engine} ${side} has ended`)),
  );
  const [line] = (await Promise.race([once(child.stdout, 'data'), died])) as [Buffer];
  return JSON.parse(line.toString()) as number[];
}

/** Converts keys to text, so that they can be written to a file. */
function plain(source: CredentialSource): CredentialSource {
  const { key } = source;
  return {
    ...source,
    key: typeof key === 'string' ? key : key.export({ type: 'pkcs8', format: 'pem' }),
  };
}

/** Reads the processor time of both hops so far, in seconds. On a shared machine it is steadier than a rate. */
async function processorSeconds(): Promise<number> {
  let ticks = 0;
  for (const { pid } of children.slice(1)) {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    ticks += Number(fields[11]) + Number(fields[12]);
  }
  return ticks / TICKS_PER_SECOND;
}

async function throughput(port: number, connections: number, down: boolean): Promise<string> {
  const time = ['-t', String(seconds), '-P', String(connections), '-J'];
  const args = ['-c', '127.0.0.1', '-p', String(port), ...time, ...(down ? ['-R'] : [])];
  const before = await processorSeconds();
  const { stdout } = await run('iperf3', args, { maxBuffer: 2 ** 26 });
  const used = (await processorSeconds()) - before;
  const report = JSON.parse(stdout) as {
    end: { sum_received: { bits_per_second: number; bytes: number } };
  };
  const { bits_per_second: rate, bytes } = report.end.sum_received;
  return `${(rate / 1e9).toFixed(2)} Gbit/s, ${((used * 1e9) / bytes).toFixed(3)} s of processor a GB`;
}

async function requests(port: number, connections: number, fresh = false): Promise<string> {
  const close = fresh ? ['-H', 'Connection: close'] : [];
  const args = ['-t1', `-c${connections}`, `-d${seconds}s`, '--latency', ...close];
  const before = await processorSeconds();
  const { stdout } = await run('wrk', [...args, `http://127.0.0.1:${port}/`]);
  const used = (await processorSeconds()) - before;
  const rate = Number(/Requests\/sec:\s+([\d.]+)/.exec(stdout)?.[1] ?? 0);
  const count = Number(/(\d+) requests in/.exec(stdout)?.[1] ?? 0);
  const p50 = /50%\s+(\S+)/.exec(stdout)?.[1] ?? '-';
  const p99 = /99%\s+(\S+)/.exec(stdout)?.[1] ?? '-';
  const each = ((used * 1e6) / count).toFixed(1);
  return `${rate.toFixed(0)}/s, p50 ${p50}, p99 ${p99}, ${each} us of processor each`;
}

try {
  const pki = await createTunnelPki();
  const client = await pki.issue('spiffe://cluster.local/ns/demo/sa/client');
  const server = await pki.issue('spiffe://cluster.local/ns/demo/sa/server');
  await writeFile(
    join(scratch, 'keys.json'),
    JSON.stringify({ client: plain(client), server: plain(server) }),
  );
  const body = Buffer.alloc(1_024, 'x');
  const http = createServer((_, response) => response.end(body)).listen(0, '127.0.0.1');
  await once(http, 'listening');
  const httpPort = (http.address() as AddressInfo).port;
  const iperf = spawn('iperf3', ['-s', '-p', '5291'], { stdio: 'ignore' });
  children.push(iperf);
  for (const engine of values.engines.split(',')) {
    const [tunnel = 0] = await hop(engine, 'server', {});
    const ports = await hop(engine, 'client', { tunnel, targets: [5291, httpPort] });
    const [bytes = 0, web = 0] = ports;
    const say = (name: string, figure: string): void =>
      void process.stdout.write(`${engine.padEnd(8)} ${name.padEnd(26)} ${figure}\n`);
    const figures: Record<string, () => Promise<string>> = {
      up1: () => throughput(bytes, 1, false),
      down1: () => throughput(bytes, 1, true),
      up8: () => throughput(bytes, 8, false),
      down8: () => throughput(bytes, 8, true),
      req1: () => requests(web, 1),
      req16: () => requests(web, 16),
      req64: () => requests(web, 64),
      new16: () => requests(web, 16, true),
    };
    for (const [name, figure] of Object.entries(figures)) {
      if (values.only === undefined || values.only.split(',').includes(name)) {
        say(name, await figure());
      }
    }
    for (const child of children.splice(1)) {
      child.kill('SIGTERM');
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    }
  }
  http.close();
  http.closeAllConnections();
} finally {
  for (const child of children) child.kill('SIGTERM');
  await rm(scratch, { recursive: true });
}
