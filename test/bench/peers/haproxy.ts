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
  const tls = `crt ${certificate.both} ca-file ${certificate.root} verify required`;
  const taking = side === 'server' ? ` ssl ${tls} ssl-min-ver TLSv1.3 no-tls-tickets` : '';
  const dialling = side === 'client' ? ` ssl ${tls} no-ssl-reuse` : '';
  const sections = forwards.flatMap(({ listen, host, port }) => [
    `listen p${listen}`,
    `  bind :::${listen} v4v6${taking}`,
    `  server s ${host}:${port}${dialling}`,
  ]);
  const config = [
    // Four TLS records a turn instead of one.
    ...globalSection('  ssl-server-verify required', '  tune.bufsize 65536'),
    'defaults',
    '  mode tcp',
    '  timeout connect 5s',
    '  timeout client 10m',
    '  timeout server 10m',
    ...sections,
  ];
  return start(netns, join(directory, `haproxy-${side}.cfg`), config);
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
