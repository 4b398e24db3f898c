/** A connection leaves node:tls after its handshake. No key may meet the same sequence number twice. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { TLSSocket, connect as connectTls, createSecureContext } from 'node:tls';
import type { SecureContext } from 'node:tls';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { handOver } from '../../lib/hbone/handover/handover.ts';
import type { HandedOver, Leaving } from '../../lib/hbone/handover/handover.ts';
import { countRecords } from '../../lib/hbone/handover/records.ts';
import { TrafficSecrets } from '../../lib/hbone/handover/traffic-secrets.ts';
import { acceptTls, connectTls as dialTls } from '../../lib/hbone/tls.ts';
import { present } from '../../lib/errors/assert.ts';
import { tlsParameters } from '../../lib/tls/parameters.ts';
import { socketPair } from '../support/socket-pair.ts';
import { RecordKeys, cutRecords } from '../support/record-decoder.ts';
import { MIB, tunnelOptions } from '../support/tunnel-kit.ts';
import {
  CLIENT,
  SERVER,
  createTunnelPki,
  credentials,
  credentialsLimitedTo,
  pems,
} from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';

const SUITES = [
  'TLS_AES_128_GCM_SHA256',
  'TLS_AES_256_GCM_SHA384',
  'TLS_CHACHA20_POLY1305_SHA256',
] as const;
const TLS12_SUITE = 'ECDHE-ECDSA-AES128-GCM-SHA256';
const APPLICATION_DATA = 23;
const GROUPS = ['X25519MLKEM768', 'X25519'] as const;
type Role = 'client' | 'server';

/** Both ends of a connection through a wire that keeps what passes. */
interface Setup {
  /** Null with TLS 1.2. */
  readonly leaving: Leaving | null;
  readonly secured: TLSSocket;
  /** Our end of the wire. */
  readonly near: Socket;
  readonly peer: TLSSocket;
  /** Bytes that our end has sent so far. */
  readonly sent: () => Buffer;
  /** The secret of our end's direction, as the peer knows it. */
  readonly secret: () => Buffer;
}

interface Choice {
  readonly role: Role;
  readonly suite: string;
  readonly group: string;
  /** The peer sends it as soon as it may. */
  readonly greeting?: Buffer;
  readonly tls12?: boolean;
}

async function both(t: ExecutionContext, choice: Choice): Promise<Setup> {
  const { role, suite, group, greeting, tls12 } = choice;
  const pki = await createTunnelPki();
  const policy = { tls12: tls12 === true, compliance: null };
  const own = await pki.issue(role === 'client' ? CLIENT : SERVER);
  const other = await pki.issue(role === 'client' ? SERVER : CLIENT);
  const limits = {
    ...tlsParameters(policy),
    ciphers: suite,
    ecdhCurve: tls12 === true ? 'P-256' : group,
    ...(tls12 === true ? ({ maxVersion: 'TLSv1.2', ciphers: TLS12_SUITE } as const) : {}),
  };
  const context = createSecureContext({ ...pems(other), ...limits });
  const { near, far, sent } = await wire(t);
  const secrets = new Map<string, Buffer>();
  const peer = peerOf(role, far, context);
  t.teardown(() => peer.destroy());
  peer.on('error', () => {});
  peer.on('keylog', (line: Buffer) => {
    const [label, , secret] = line.toString().trim().split(' ');
    if (label !== undefined && secret !== undefined) secrets.set(label, Buffer.from(secret, 'hex'));
  });
  if (greeting !== undefined) {
    peer.once(role === 'client' ? 'secure' : 'secureConnect', () => peer.write(greeting));
  }
  const ours =
    suite === 'TLS_CHACHA20_POLY1305_SHA256'
      ? credentialsLimitedTo(own, limits)
      : credentials(own, policy);
  const options = tunnelOptions(ours);
  const secured = await (role === 'server' ? acceptTls(near, options) : dialTls(near, options));
  t.is(secured.peer.identity, role === 'client' ? SERVER : CLIENT);
  return {
    leaving: secured.leaving,
    secured: secured.socket,
    near,
    peer,
    sent,
    secret: () => present(secrets.get(`${role.toUpperCase()}_TRAFFIC_SECRET_0`), 'its secret'),
  };
}

/** {@link both} for a connection that can leave. */
async function setUp(
  t: ExecutionContext,
  choice: Choice,
): Promise<Setup & { readonly leaving: Leaving }> {
  const { leaving, ...rest } = await both(t, choice);
  if (leaving === null) throw new Error('the connection stays in node:tls');
  return { ...rest, leaving };
}

/** The peer's end, in the role that ours does not have. */
function peerOf(role: Role, far: Socket, secureContext: SecureContext): TLSSocket {
  const common = { secureContext, ALPNProtocols: ['h2'], rejectUnauthorized: false };
  if (role === 'server') {
    return connectTls({ socket: far, ...common, checkServerIdentity: () => undefined });
  }
  return new TLSSocket(far, { ...common, isServer: true, requestCert: true });
}

/** A TCP connection that keeps what the near end sends. */
async function wire(
  t: ExecutionContext,
): Promise<{ readonly near: Socket; readonly far: Socket; readonly sent: () => Buffer }> {
  const kept: Buffer[] = [];
  const { near, far: middle } = await socketPair(t);
  const { near: back, far } = await socketPair(t);
  middle.on('data', (chunk: Buffer) => kept.push(chunk));
  middle.pipe(back);
  back.pipe(middle);
  return { near, far, sent: () => Buffer.concat(kept) };
}

/** Goes on with the connection, as native code does. */
class Carried {
  readonly raw: Socket;
  readonly handed: HandedOver;
  readonly received: Buffer[] = [];
  readonly #read: RecordKeys;
  readonly #write: RecordKeys;
  #input: Buffer;
  #next: number;
  #seen = 0;

  constructor(raw: Socket, handed: HandedOver) {
    this.raw = raw;
    this.handed = handed;
    this.#read = new RecordKeys(handed.suite, handed.readSecret);
    this.#write = new RecordKeys(handed.suite, handed.writeSecret);
    this.#next = handed.writeSequence;
    this.#input = handed.unread;
    this.#take();
    raw.on('data', (chunk: Buffer) => {
      this.#input = Buffer.concat([this.#input, chunk]);
      this.#take();
    });
    raw.resume();
  }

  send(content: Buffer): void {
    this.raw.write(this.#write.seal(content, this.#next));
    this.#next += 1;
  }

  get text(): string {
    return Buffer.concat(this.received).toString('latin1');
  }

  #take(): void {
    for (const record of cutRecords(this.#input)) {
      const opened = this.#read.open(record, this.#seen);
      if (opened === null) throw new Error(`record ${this.#seen} cannot be read`);
      this.#seen += 1;
      this.#input = this.#input.subarray(record.length);
      if (opened.type === APPLICATION_DATA) this.received.push(Buffer.from(opened.content));
    }
  }
}

/** The sequence numbers under which the encrypted records were sealed, in their order; handshake records have none. */
function sequences(sent: Buffer, suite: string, secret: Buffer): number[] {
  const keys = new RecordKeys(suite, secret);
  const records = cutRecords(sent).filter((record) => record[0] === APPLICATION_DATA);
  const numbers = records.map((record) =>
    records.flatMap((_, number) => (keys.open(record, number) === null ? [] : [number])),
  );
  return numbers.flat();
}

for (const role of ['server', 'client'] as const) {
  for (const suite of SUITES) {
    for (const group of GROUPS) {
      test(`a ${role} leaves node:tls with ${suite} and ${group}, and uses no number twice`, async (t) => {
        const greeting = randomBytes(40_000);
        const { leaving, peer, sent, secret } = await setUp(t, { role, suite, group, greeting });
        const heard: Buffer[] = [];
        peer.on('data', (chunk: Buffer) => heard.push(chunk));
        const carried = await handOver(leaving, (raw, handed) => new Carried(raw, handed));
        t.is(carried.handed.suite, suite);
        // A server has sent two tickets, which no option prevents.
        t.is(carried.handed.writeSequence, role === 'server' ? 2 : 0);
        for (const content of ['one ', 'two ', 'three']) carried.send(Buffer.from(content));
        await until(() => Buffer.concat(heard).toString() === 'one two three', {
          what: 'the peer to read all',
        });
        await until(() => carried.text === greeting.toString('latin1'), {
          what: 'all that the peer said',
        });
        peer.write('again');
        await until(() => carried.text.endsWith('again'), { what: 'more of the peer' });
        const used = sequences(sent(), suite, secret());
        t.deepEqual(
          used,
          used.map((_, index) => index),
        );
        t.is(used.length, carried.handed.writeSequence + 3);
        // The secrets are gone.
        t.true(carried.handed.readSecret.every((byte) => byte === 0));
        t.true(carried.handed.writeSecret.every((byte) => byte === 0));
      });
    }
  }
}

for (const role of ['server', 'client'] as const) {
  const choice = { role, suite: SUITES[0], group: GROUPS[1] } as const;

  test(`a ${role}'s node:tls writes nothing more once the connection has left it`, async (t) => {
    const { leaving, peer, sent } = await setUp(t, choice);
    await handOver(leaving, (raw) => raw);
    const before = sent().length;
    leaving.socket.end('late');
    leaving.socket.destroy();
    leaving.raw.end();
    await once(peer.resume(), 'end');
    t.is(sent().length, before);
  });

  test(`a ${role} without the secrets fails closed`, async (t) => {
    const { leaving, peer } = await setUp(t, choice);
    const ended = once(peer.resume(), 'end');
    const blind = { ...leaving, secrets: new TrafficSecrets() };
    await t.throwsAsync(
      handOver(blind, () => t.fail('it goes on')),
      { code: 'TLS_HANDSHAKE', message: /secrets/ },
    );
    await ended;
    t.true(leaving.raw.destroyed);
  });

  test(`a ${role}'s connection is not handed over twice`, async (t) => {
    const { leaving } = await setUp(t, choice);
    await handOver(leaving, (raw) => raw);
    await t.throwsAsync(
      handOver(leaving, () => t.fail('it goes on')),
      { code: 'TLS_HANDSHAKE' },
    );
    t.true(leaving.raw.destroyed);
  });

  test(`a ${role} whose peer leaves first fails`, async (t) => {
    const { leaving, peer } = await setUp(t, choice);
    peer.destroy();
    leaving.raw.destroy();
    await t.throwsAsync(
      handOver(leaving, () => t.fail('it goes on')),
      { code: 'TLS_HANDSHAKE' },
    );
  });

  test(`a ${role} with TLS 1.2 stays in node:tls`, async (t) => {
    const { leaving, peer, secured } = await both(t, { ...choice, tls12: true });
    t.is(leaving, null);
    peer.write('to you');
    const [said] = (await once(secured, 'data')) as [Buffer];
    t.is(said.toString(), 'to you');
    secured.write('and back');
    const [answer] = (await once(peer, 'data')) as [Buffer];
    t.is(answer.toString(), 'and back');
  });

  test(`a ${role} with TLS 1.2 that is not read takes in little`, async (t) => {
    const { near, peer, secured } = await both(t, { ...choice, tls12: true });
    const flood = randomBytes(32 * MIB);
    const heard: Buffer[] = [];
    secured.once('data', (chunk: Buffer) => {
      secured.pause();
      heard.push(chunk);
    });
    peer.write(flood);
    await until(() => heard.length > 0 && near.isPaused(), { what: 'the wire to be paused' });
    t.true(near.bytesRead < 4 * MIB, `${near.bytesRead} bytes were read`);
    const total = (): number => heard.reduce((sum, { length }) => sum + length, 0);
    secured.on('data', (chunk: Buffer) => heard.push(chunk));
    secured.resume();
    await until(() => total() === flood.length, { timeoutMs: 20_000, what: 'the rest' });
    t.true(Buffer.concat(heard).equals(flood));
  });
}

test('a count with a gap, or with a foreign record, is refused', (t) => {
  const secret = randomBytes(32);
  const keys = new RecordKeys(SUITES[0], secret);
  const sealed = [0, 1, 2, 3].map((number) => keys.seal(Buffer.from('x'), number));
  const [zero, one, two, three] = sealed as [Buffer, Buffer, Buffer, Buffer];
  const foreign = new RecordKeys(SUITES[0], randomBytes(32)).seal(Buffer.from('x'), 0);
  const count = (records: Buffer[]): number => countRecords(records, SUITES[0], secret);
  t.is(count([]), 0);
  t.is(count([foreign]), 0);
  t.is(count([foreign, zero, one, two, three]), 4);
  t.throws(() => count([zero, two]), { message: /record 1 / });
  t.throws(() => count([zero, zero]), { message: /record 1 / });
  t.throws(() => count([zero, one, foreign]), { message: /record 2 / });
});

test('what is no TLS is refused by OpenSSL, at once', async (t) => {
  const pki = await createTunnelPki();
  const options = tunnelOptions(credentials(await pki.issue(SERVER)));
  const plain = await socketPair(t);
  const refused = acceptTls(plain.near, options);
  plain.far.write('GET / HTTP/1.1\r\n\r\n');
  await t.throwsAsync(refused, { code: 'TLS_HANDSHAKE', message: /http request/i });
});

test('secrets are read from the key log and cleared', (t) => {
  const secrets = new TrafficSecrets();
  const wanted = randomBytes(32);
  const line = (label: string): Buffer =>
    Buffer.from(`${label} ${randomBytes(32).toString('hex')} ${wanted.toString('hex')}\n`);
  const lines = [
    'CLIENT_HANDSHAKE_TRAFFIC_SECRET',
    'SERVER_TRAFFIC_SECRET_0',
    'CLIENT_TRAFFIC_SECRET_0',
  ].map(line);
  for (const each of lines) secrets.take(each);
  t.true(lines.every((each) => each.every((byte) => byte === 0)));
  const { client, server } = secrets.of(SUITES[0]);
  t.true(client.equals(wanted));
  t.true(server.equals(wanted));
  t.throws(() => secrets.of(SUITES[1]), { message: /secrets/ });
  secrets.clear();
  t.true(client.every((byte) => byte === 0));
  t.throws(() => secrets.of(SUITES[0]), { message: /secrets/ });
  for (const each of ['CLIENT_TRAFFIC_SECRET_0', 'SERVER_TRAFFIC_SECRET_0']) {
    secrets.take(line(each));
  }
  secrets.take(line('CLIENT_TRAFFIC_SECRET_0'));
  t.throws(() => secrets.of(SUITES[0]), { message: /twice/ });
});
