/** What Weft is measured against: a plain Node TCP relay and an HAProxy pair that speaks mutual TLS. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { output, serve } from './process.ts';
import type { Background } from './process.ts';

/** One forwarded port. */
export interface Forward {
  readonly listen: number;
  readonly host: string;
  readonly port: number;
}

const relayProgram = new URL('../relay.ts', import.meta.url).pathname;

/** One relay process inside a namespace, for all the given ports. */
export function relay(netns: string, forwards: readonly Forward[]): Background {
  return serve(netns, process.execPath, relayProgram, JSON.stringify(forwards));
}

/** Server certificates for the HAProxy pair: a root, and one leaf that both sides use. */
export async function haproxyCertificates(directory: string): Promise<void> {
  const at = (name: string): string => join(directory, name);
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  await output('openssl', [
    'req',
    '-x509',
    ...curve,
    '-days',
    '2',
    '-subj',
    '/CN=bench-root',
    '-keyout',
    at('root.key'),
    '-out',
    at('root.pem'),
  ]);
  await output('openssl', [
    'req',
    ...curve,
    '-subj',
    '/CN=bench',
    '-keyout',
    at('leaf.key'),
    '-out',
    at('leaf.csr'),
  ]);
  await output('openssl', [
    'x509',
    '-req',
    '-in',
    at('leaf.csr'),
    '-CA',
    at('root.pem'),
    '-CAkey',
    at('root.key'),
    '-CAcreateserial',
    '-days',
    '2',
    '-out',
    at('leaf.pem'),
  ]);
  await output('sh', ['-c', `cat ${at('leaf.pem')} ${at('leaf.key')} > ${at('both.pem')}`]);
}

/** One side of the pair: `client` speaks TLS towards the other node, `server` takes it off. One thread each. */
export async function haproxySide(
  netns: string,
  directory: string,
  side: 'client' | 'server',
  forwards: readonly Forward[],
): Promise<Background> {
  const tls = `crt ${join(directory, 'both.pem')} ca-file ${join(directory, 'root.pem')} verify required`;
  const sections = forwards.map(({ listen, host, port }) =>
    [
      `listen p${listen}`,
      `  bind :::${listen} v4v6${side === 'server' ? ` ssl ${tls} ssl-min-ver TLSv1.3 no-tls-tickets` : ''}`,
      `  server s ${host}:${port}${side === 'client' ? ` ssl ${tls} no-ssl-reuse` : ''}`,
    ].join('\n'),
  );
  const config = [
    'global',
    '  nbthread 1',
    '  maxconn 8000',
    '  ssl-server-verify required',
    'defaults',
    '  mode tcp',
    '  timeout connect 5s',
    '  timeout client 10m',
    '  timeout server 10m',
    ...sections,
    '',
  ].join('\n');
  const file = join(directory, `haproxy-${side}.cfg`);
  await writeFile(file, config);
  return serve(netns, 'haproxy', '-db', '-q', '-f', file);
}

/** An HTTP server in C that answers 1 kB, and an iperf3 server, in one namespace. */
export async function servers(
  netns: string,
  directory: string,
  name: string,
  ports: { bytes: number; http: number },
): Promise<Background[]> {
  const body = join(directory, 'body');
  await writeFile(body, 'x'.repeat(1_024));
  const config = [
    'global',
    '  nbthread 1',
    '  maxconn 8000',
    'defaults',
    '  mode http',
    '  timeout client 10m',
    'frontend web',
    `  bind :::${ports.http} v4v6`,
    `  http-request return status 200 content-type text/plain file ${body}`,
    '',
  ].join('\n');
  const file = join(directory, `server-${name}.cfg`);
  await writeFile(file, config);
  return [
    serve(netns, 'haproxy', '-db', '-q', '-f', file),
    serve(netns, 'iperf3', '-s', '-p', String(ports.bytes)),
  ];
}
