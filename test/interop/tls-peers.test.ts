/**
 * Tests tunnels whose other end is TLS of another implementation, for each suite and group: OpenSSL's `s_client` and `s_server`, and
 * Go's crypto/tls. HTTP/2 of that end is node:http2, over the program's standard input and output.
 */
import { execFileSync, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect as connectHttp2, createServer as createHttp2Server } from 'node:http2';
import type { ServerHttp2Stream } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Duplex } from 'node:stream';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { carriedEngine } from '../../lib/hbone/carried/engine.ts';
import { carryStats } from '../../lib/linux/carry.ts';
import { ownPort } from '../support/ports.ts';
import { MIB, dial, echo, readAll, serveTunnels, tunnelOptions } from '../support/tunnel-kit.ts';
import {
  CLIENT,
  SERVER,
  createTunnelPki,
  credentialsLimitedTo,
  pems,
} from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';
import { goProgram } from './support/go.ts';

const AES_128 = 'TLS_AES_128_GCM_SHA256';
const AES_256 = 'TLS_AES_256_GCM_SHA384';
const CHACHA = 'TLS_CHACHA20_POLY1305_SHA256';
const HYBRID = 'X25519MLKEM768';
/** Each suite, and each group. */
const CHOICES = [
  [AES_128, 'X25519'],
  [AES_256, 'X25519'],
  [CHACHA, 'X25519'],
  [AES_128, 'P-256'],
  [AES_256, HYBRID],
] as const;
/** Small, so that keys change many times. */
const REKEY_RECORDS = 8;
const BYTES = 3 * MIB;

/** Files of a certificate. */
interface Files {
  readonly cert: string;
  readonly key: string;
  readonly roots: string;
}

/** An implementation: its commands, and why it does not take part in a group, null when it does. */
interface Peer {
  readonly name: string;
  missing(group: string): string | null;
  dial(port: number, files: Files): readonly string[];
  serve(port: number, files: Files): readonly string[];
}

/** Runs `openssl` once; null when it does not end well. */
function openssl(...args: readonly string[]): string | null {
  try {
    return execFileSync('openssl', args, { stdio: 'pipe' }).toString();
  } catch {
    return null;
  }
}

const version = openssl('version');
const hasHybrid = openssl('list', '-kem-algorithms')?.includes(HYBRID) === true;
const groups = `${hasHybrid ? `${HYBRID}:` : ''}X25519:P-256`;
const suites = [AES_128, AES_256, CHACHA].join(':');
const common = ({ cert, key, roots }: Files): readonly string[] => {
  const files = ['-cert', cert, '-key', key, '-CAfile', roots];
  const offer = ['-tls1_3', '-alpn', 'h2', '-groups', groups, '-ciphersuites', suites];
  return ['-quiet', '-verify_return_error', ...files, ...offer];
};
const opensslPeer: Peer = {
  name: 'OpenSSL',
  missing: (group) => {
    if (version === null) return 'openssl is missing';
    return group === HYBRID && !hasHybrid ? `${version.trim()} has no ${HYBRID}` : null;
  },
  dial: (port, files) => ['openssl', 's_client', '-connect', `127.0.0.1:${port}`, ...common(files)],
  serve: (port, files) => {
    const once = ['-accept', `127.0.0.1:${port}`, '-naccept', '1', '-Verify', '2'];
    return ['openssl', 's_server', ...once, ...common(files)];
  },
};

const go = await goProgram('tls');
const goCommand = (role: string, port: number, { cert, key, roots }: Files): readonly string[] => [
  'path' in go ? go.path : '',
  role,
  `127.0.0.1:${port}`,
  cert,
  key,
  roots,
];
const goPeer: Peer = {
  name: "Go's crypto/tls",
  missing: () => ('missing' in go ? go.missing : null),
  dial: (port, files) => goCommand('dial', port, files),
  serve: (port, files) => goCommand('serve', port, files),
};

/** Starts the program; its standard input and output carry the content of the connection. */
function start(t: ExecutionContext, [command = '', ...args]: readonly string[]): Duplex {
  const child = spawn(command, args, { stdio: 'pipe' });
  const said: Buffer[] = [];
  child.stderr.on('data', (chunk: Buffer) => said.push(chunk));
  child.stdin.on('error', () => {});
  t.teardown(() => {
    child.kill('SIGKILL');
    if (!t.passed) t.log(Buffer.concat(said).toString());
  });
  // The types know only the streams of the web here.
  const both = {
    readable: child.stdout,
    writable: child.stdin,
  } as unknown as AsyncIterable<Buffer>;
  const content = Duplex.from(both);
  content.on('error', () => {});
  return content;
}

/** Certificates of both ends; Weft's end knows only this suite and this group, the other's stand in files. */
async function parties(
  t: ExecutionContext,
  own: string,
  other: string,
  suite: string,
  group: string,
) {
  const pki = await createTunnelPki();
  const { cert, key, ca } = pems(await pki.issue(other));
  const folder = await mkdtemp(join(tmpdir(), 'weft-tls-peers-'));
  t.teardown(() => rm(folder, { recursive: true }));
  const files = {
    cert: join(folder, 'cert'),
    key: join(folder, 'key'),
    roots: join(folder, 'roots'),
  };
  await Promise.all([
    writeFile(files.cert, cert),
    writeFile(files.key, key, { mode: 0o600 }),
    writeFile(files.roots, ca),
  ]);
  const limited = credentialsLimitedTo(await pki.issue(own), { ciphers: suite, ecdhCurve: group });
  return { files, options: { ...tunnelOptions(limited), rekeyRecords: REKEY_RECORDS } };
}

const digest = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

for (const peer of [opensslPeer, goPeer]) {
  for (const [suite, group] of CHOICES) {
    const reason = peer.missing(group);
    if (reason !== null) process.stdout.write(`SKIPPED interop: ${reason}\n`);
    const declare = reason === null ? test.serial : test.serial.skip;

    declare(`${peer.name} as a client, with ${suite} and ${group}`, async (t) => {
      const { files, options } = await parties(t, SERVER, CLIENT, suite, group);
      const fixture = await serveTunnels(t, carriedEngine, options, echo);
      const content = start(t, peer.dial(fixture.port, files));
      const session = connectHttp2('http://peer', { createConnection: () => content });
      session.on('error', () => {});
      t.teardown(() => session.destroy());
      const updates = carryStats().updatesWritten;
      const sent = randomBytes(BYTES);
      const stream = session.request({ ':method': 'CONNECT', ':authority': '10.0.0.1:8080' });
      stream.end(sent);
      t.is(digest(await readAll(stream)), digest(sent));
      t.is(fixture.tunnels[0]?.peer.identity, CLIENT);
      t.true(carryStats().updatesWritten > updates);
    });

    declare(`${peer.name} as a server, with ${suite} and ${group}`, async (t) => {
      const { files, options } = await parties(t, CLIENT, SERVER, suite, group);
      const port = await ownPort();
      const content = start(t, peer.serve(port, files));
      const server = createHttp2Server();
      server.on('sessionError', () => {});
      server.on('stream', (stream: ServerHttp2Stream) => {
        stream.respond({ ':status': 200 });
        stream.pipe(stream);
      });
      server.emit('connection', content);
      const updates = carryStats().updatesWritten;
      const sent = randomBytes(BYTES);
      const socket = await until(() => dial(t, port).catch(() => null), {
        what: 'the peer to listen',
      });
      const tunnel = await carriedEngine.connect(socket, options);
      t.teardown(() => tunnel.destroy());
      const stream = await tunnel.open({ authority: '10.0.0.1:8080', headers: {} });
      stream.duplex.end(sent);
      t.is(digest(await readAll(stream.duplex)), digest(sent));
      t.is(tunnel.peer.identity, SERVER);
      t.true(carryStats().updatesWritten > updates);
    });
  }
}
