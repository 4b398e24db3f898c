/** Runs the native peer: an HAProxy pair with mutual TLS between them, one thread each. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { PairCertificate } from '../lib/certificate.ts';
import { serve } from '../lib/process.ts';
import type { Background } from '../lib/process.ts';
import type { Forward } from '../programs/forward.ts';

const MAX_CONNECTIONS = 8_000;

/** Starts one side of the pair: `client` adds TLS towards the other node, `server` removes it. No resumption. */
export async function haproxySide(
  netns: string,
  directory: string,
  side: 'client' | 'server',
  certificate: PairCertificate,
  forwards: readonly Forward[],
): Promise<Background> {
  const tls = tlsWords(certificate);
  const taking = side === 'server' ? taken(tls) : '';
  const dialling = side === 'client' ? dialled(tls) : '';
  const sections = forwards.flatMap(({ listen, host, port }) => [
    `listen p${listen}`,
    `  bind :::${listen} v4v6${taking}`,
    `  server s ${host}:${port}${dialling}`,
  ]);
  return start(netns, join(directory, `haproxy-${side}.cfg`), relay(sections));
}

/** The ports of a pair in the place of listeners. */
export interface CapturedPorts {
  /** Receives redirected connections. */
  readonly outbound: number;
  /** Between the two. */
  readonly tunnel: number;
  /** Those of the application. */
  readonly application: readonly number[];
}

/**
 * Starts one side of the pair in a pod, in the place of a listener. It tells the application's ports apart by the original destination, and
 * by the protocol of ALPN between the two.
 */
export async function haproxyCaptured(
  netns: string,
  directory: string,
  side: 'client' | 'server',
  certificate: PairCertificate,
  to: { readonly ip: string; readonly ports: CapturedPorts },
): Promise<Background> {
  const { outbound, tunnel, application } = to.ports;
  const tls = tlsWords(certificate);
  const names = application.map((of) => `port${of}`).join(',');
  const bind =
    side === 'client' ? `0.0.0.0:${outbound}` : `0.0.0.0:${tunnel}${taken(tls)} alpn ${names}`;
  const port = side === 'client' ? 'dst_port' : 'ssl_fc_alpn';
  const name = (of: number): string => (side === 'client' ? String(of) : `port${of}`);
  const server = (of: number): string =>
    side === 'client' ? `${to.ip}:${tunnel}${dialled(tls)} alpn port${of}` : `${to.ip}:${of}`;
  const sections = [
    'frontend captured',
    `  bind ${bind}`,
    ...application.map((of) => `  use_backend b${of} if { ${port} ${name(of)} }`),
    ...application.flatMap((of) => [`backend b${of}`, `  server s ${server(of)}`]),
  ];
  return start(netns, join(directory, `haproxy-captured-${side}.cfg`), relay(sections));
}

function tlsWords({ both, root }: PairCertificate): string {
  return `crt ${both} ca-file ${root} verify required`;
}

function taken(tls: string): string {
  return ` ssl ${tls} ssl-min-ver TLSv1.3 no-tls-tickets`;
}

function dialled(tls: string): string {
  return ` ssl ${tls} no-ssl-reuse`;
}

function relay(sections: readonly string[]): string[] {
  return [
    // Four TLS records a turn instead of one.
    ...globalSection('  ssl-server-verify required', '  tune.bufsize 65536'),
    'defaults',
    '  mode tcp',
    '  timeout connect 5s',
    '  timeout client 10m',
    '  timeout server 10m',
    ...sections,
  ];
}

/** Starts HAProxy as an HTTP server that answers 1 kB. */
export async function httpServer(
  netns: string,
  directory: string,
  name: string,
  port: number,
): Promise<Background> {
  const body = join(directory, 'body');
  await writeFile(body, 'x'.repeat(1_024));
  const config = [
    ...globalSection(),
    'defaults',
    '  mode http',
    '  timeout client 10m',
    'frontend web',
    `  bind :::${port} v4v6`,
    `  http-request return status 200 content-type text/plain file ${body}`,
  ];
  return start(netns, join(directory, `server-${name}.cfg`), config);
}

function globalSection(...more: string[]): string[] {
  return ['global', '  nbthread 1', `  maxconn ${MAX_CONNECTIONS}`, ...more];
}

async function start(netns: string, file: string, lines: readonly string[]): Promise<Background> {
  await writeFile(file, `${lines.join('\n')}\n`);
  return serve(netns, 'haproxy', '-db', '-q', '-f', file);
}
