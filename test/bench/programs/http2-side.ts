/**
 * Runs one half of a pair that carries each connection as an HTTP/2 CONNECT stream of `node:http2` over mutual TLS, with
 * the windows and frames of a mesh and a pool of sessions, but no policy, identities or telemetry.
 */
import { readFileSync } from 'node:fs';
import { connect as connectHttp2, createSecureServer } from 'node:http2';
import type { ClientHttp2Session, ServerHttp2Stream } from 'node:http2';
import { connect as connectTcp, createServer } from 'node:net';
import { BUFFER_BYTES, join, relayOptions } from './forward.ts';
import type { Forward } from './forward.ts';

const STREAM_WINDOW = 4 * 1_048_576;
const CONNECTION_WINDOW = 16 * 1_048_576;
const STREAMS_PER_SESSION = 100;

const { side, certificateFile, rootFile, forwards } = relayOptions();
const pem = readFileSync(certificateFile);
const common = {
  cert: pem,
  key: pem,
  ca: readFileSync(rootFile),
  minVersion: 'TLSv1.3',
  maxSessionMemory: 1_000,
  settings: {
    initialWindowSize: STREAM_WINDOW,
    maxFrameSize: BUFFER_BYTES,
    maxConcurrentStreams: STREAMS_PER_SESSION,
    enablePush: false,
  },
} as const;
const socketOptions = { allowHalfOpen: true, noDelay: true, highWaterMark: BUFFER_BYTES };

interface Pooled {
  readonly session: ClientHttp2Session;
  streams: number;
}

function takeSession(pool: Pooled[], to: Forward): Pooled {
  const free = pool.find((one) => one.streams < STREAMS_PER_SESSION);
  if (free !== undefined) return free;
  const session = connectHttp2(`https://${to.host}:${to.port}`, {
    ...common,
    // Both ends share this run's certificate; the chain to its root is checked.
    checkServerIdentity: () => undefined,
  });
  const pooled = { session, streams: 0 };
  session.once('connect', () => session.setLocalWindowSize(CONNECTION_WINDOW));
  session.on('error', () => session.destroy());
  session.on('close', () => void pool.splice(pool.indexOf(pooled), 1));
  pool.push(pooled);
  return pooled;
}

function serveClients(to: Forward): void {
  const pool: Pooled[] = [];
  createServer(socketOptions, (socket) => {
    const pooled = takeSession(pool, to);
    pooled.streams += 1;
    const stream = pooled.session.request(
      { ':method': 'CONNECT', ':authority': `${to.host}:${to.port}` },
      { endStream: false },
    );
    stream.on('close', () => (pooled.streams -= 1));
    join(socket, stream);
  }).listen(to.listen, '::', 4_096);
}

function servePeers({ listen, host, port }: Forward): void {
  const server = createSecureServer({ ...common, requestCert: true, rejectUnauthorized: true });
  server.on('session', (session) => session.setLocalWindowSize(CONNECTION_WINDOW));
  server.on('stream', (stream: ServerHttp2Stream) => {
    const socket = connectTcp({ ...socketOptions, host, port });
    stream.respond({ ':status': 200 });
    join(stream, socket);
  });
  server.listen(listen, '::', 4_096);
}

for (const forward of forwards) {
  if (side === 'client') serveClients(forward);
  else servePeers(forward);
}
