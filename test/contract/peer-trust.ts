/** Part of the engine contract: how a changed revocation list or set of roots affects tunnels. */
import { setImmediate as turn } from 'node:timers/promises';
import type { ExecutionContext, TestFn } from 'ava';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { systemClock } from '../../lib/clock/clock.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import type {
  ClientTunnel,
  HboneEngine,
  IncomingRequest,
  TunnelStream,
} from '../../lib/hbone/engine.ts';
import { PeerTrust } from '../../lib/hbone/peer-trust.ts';
import { REVERIFIED_PER_TURN } from '../../lib/hbone/limits.ts';
import { NO_REVOCATIONS, parseRevocationLists } from '../../lib/identity/crl.ts';
import type { RevocationLists } from '../../lib/identity/crl.ts';
import type { Issuer } from '../../lib/identity/x509.ts';
import { settingId, windowUpdateFrame } from '../../lib/hbone/session/frames.ts';
import { connectFrame, hostilePeer } from '../support/hostile-peer.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { issueCrl } from '../support/crl-kit.ts';
import type { CrlRequest } from '../support/crl-kit.ts';
import {
  closedBy,
  dial,
  openTunnel,
  request,
  roundTrip,
  serveTunnels,
  tunnelOptions,
} from '../support/tunnel-kit.ts';
import { CLIENT, SERVER, createTunnelPki, credentials } from '../support/tunnel-pki.ts';
import type { TunnelPki } from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';

const log = { info: () => {}, warn: () => {} };

type Test = ExecutionContext;

const HOUR_MS = 3_600_000;

function peerTrust(
  revocation = true,
  distrustGraceMs = 60_000,
  clock: Clock = systemClock,
): PeerTrust {
  return new PeerTrust({ revocation, distrustGraceMs }, { clock, log });
}

async function lists(issuer: Issuer, crl: CrlRequest): Promise<RevocationLists> {
  return parseRevocationLists(await issueCrl(issuer, crl));
}

/** Guards both ends, each by its own trust. `open` makes tunnels of one stream that the server keeps open. */
async function guarded(
  t: Test,
  engine: HboneEngine,
  pki: TunnelPki,
  options: { readonly intermediate?: boolean } = {},
) {
  const ends = { client: peerTrust(), server: peerTrust() };
  const sources = {
    client: await pki.issue(CLIENT, options),
    server: await pki.issue(SERVER, options),
  };
  const own = { client: credentials(sources.client), server: credentials(sources.server) };
  const accepted: TunnelStream[] = [];
  const fixture = await serveTunnels(
    t,
    ends.server.guard(engine),
    tunnelOptions(own.server),
    (incoming) => {
      const stream = incoming.accept({});
      if (stream !== null) accepted.push(stream);
      return Promise.resolve();
    },
  );
  const open = async (
    client = own.client,
    trust = ends.client,
  ): Promise<{ tunnel: ClientTunnel; stream: TunnelStream }> => {
    const tunnel = await openTunnel(t, trust.guard(engine), fixture.port, tunnelOptions(client));
    const stream = await tunnel.open(request);
    stream.duplex.on('error', () => {});
    accepted.at(-1)?.duplex.on('error', () => {});
    return { tunnel, stream };
  };
  return { ...ends, sources, own, accepted, fixture, open };
}

export function peerTrustContract(test: TestFn, engine: HboneEngine): void {
  handshakes(test, engine);
  liveTunnels(test, engine);
  roots(test, engine);
  unread(test, engine);
}

function handshakes(test: TestFn, engine: HboneEngine): void {
  // spec: hbone.md §4
  test('a revoked client is refused by the server, a revoked server by the client, and counted', async (t) => {
    const pki = await createTunnelPki();
    const mesh = await guarded(t, engine, pki);
    await mesh.server.setRevocations(
      await lists(pki.root, { revoked: [mesh.sources.client.chainPem] }),
    );
    await t.throwsAsync(mesh.open());
    await until(() => mesh.fixture.failures.length === 1, { what: 'the refusal' });
    t.is(mesh.fixture.failures[0]?.code, 'TLS_PEER_REVOKED');
    t.regex(
      mesh.fixture.failures[0]?.message ?? '',
      /revoked: serial [0-9A-F]+ of the authority O=test/,
    );
    t.deepEqual(mesh.server.counters.rejections, { source: 0, destination: 1 });

    const other = peerTrust();
    await other.setRevocations(await lists(pki.root, { revoked: [mesh.sources.server.chainPem] }));
    const fresh = credentials(await pki.issue(CLIENT));
    await t.throwsAsync(mesh.open(fresh, other), { code: 'TLS_PEER_REVOKED' });
    t.deepEqual(other.counters.rejections, { source: 1, destination: 0 });
    const { stream } = await mesh.open(fresh, mesh.client);
    stream.reset();
  });

  // spec: hbone.md §4
  test('a revoked intermediate refuses its leaves; lists of authorities that are not involved do not', async (t) => {
    const pki = await createTunnelPki();
    const mesh = await guarded(t, engine, pki, { intermediate: true });
    const stranger = await createTunnelPki('stranger');
    await mesh.server.setRevocations(await lists(stranger.root, { revoked: [Buffer.of(1)] }));
    (await mesh.open()).stream.reset();
    const middle = pki.middle.certificate.toString();
    await mesh.server.setRevocations(await lists(pki.root, { revoked: [middle] }));
    await t.throwsAsync(mesh.open());
    await until(() => mesh.fixture.failures.length === 1, { what: 'the refusal' });
    t.is(mesh.fixture.failures[0]?.code, 'TLS_PEER_REVOKED');
  });

  test('certificates of no use in the chain do not hide a revocation', async (t) => {
    const pki = await createTunnelPki();
    const mesh = await guarded(t, engine, pki);
    const revoked = await pki.issue(CLIENT, { intermediate: true });
    const [leaf = '', middle = ''] =
      revoked.chainPem.match(/-----BEGIN[^]*?END CERTIFICATE-----\n/g) ?? [];
    // An authority with the same name as the leaf's issuer, and many others.
    const impostor = await createTunnelPki();
    const junk = await Promise.all(
      Array.from({ length: 40 }, async (_, n) => (await createTunnelPki(`junk ${n}`)).rootPem),
    );
    await mesh.server.setRevocations(await lists(pki.middle, { revoked: [leaf] }));
    const chains = [
      leaf + impostor.middle.certificate.toString() + middle,
      leaf + middle + junk.join(''),
      leaf + junk.join('') + middle,
    ];
    for (const chainPem of chains) {
      await t.throwsAsync(mesh.open(credentials({ ...revoked, chainPem })));
    }
    await until(() => mesh.fixture.failures.length === chains.length, { what: 'the refusals' });
    t.deepEqual(
      mesh.fixture.failures.map(({ code }) => code),
      // A path is refused when its authority is not among the examined ones, because it cannot be judged.
      ['TLS_PEER_REVOKED', 'TLS_PEER_REVOKED', 'TLS_HANDSHAKE'],
    );
    t.is(mesh.fixture.tunnels.length, 0);
  });
}

function liveTunnels(test: TestFn, engine: HboneEngine): void {
  test('a tunnel destroyed for a reason ends its streams with it, asked or open, on this side alone', async (t) => {
    const pki = await createTunnelPki();
    const client = credentials(await pki.issue(CLIENT));
    const server = credentials(await pki.issue(SERVER));
    const accepted: TunnelStream[] = [];
    const given: (MeshError | null)[] = [];
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), (incoming) => {
      if (incoming.authority === 'silent:1') {
        return new Promise((resolve) => {
          incoming.onAborted((why) => {
            given.push(why);
            resolve();
          });
        });
      }
      const stream = incoming.accept({});
      if (stream !== null) accepted.push(stream);
      return Promise.resolve();
    });
    const reason = new MeshError('TLS_PEER_REVOKED', 'no longer trusted');
    for (const side of ['client', 'server'] as const) {
      const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
      const stream = await tunnel.open(request);
      const own = side === 'client' ? stream : accepted.at(-1);
      const seen = new Promise((resolve) => own?.duplex.once('error', resolve));
      stream.duplex.on('error', () => {});
      const waiting = t.throwsAsync(tunnel.open({ ...request, authority: 'silent:1' }));
      await until(() => fixture.tunnels.at(-1)?.counters.opened === 2, { what: 'both requests' });
      (side === 'client' ? tunnel : fixture.tunnels.at(-1))?.destroy(reason);
      t.is(await seen, reason);
      const failure = await waiting;
      if (side === 'client') t.is(failure, reason);
      await tunnel.closed;
    }
    await fixture.tunnels.at(-1)?.closed;
    // Unanswered requests get the reason too; a request that only lost its peer gets none.
    await until(() => given.length === 2, { what: 'the ends of both requests' });
    t.deepEqual(given, [null, reason]);
  });

  // spec: hbone.md §4
  test('live tunnels of a revoked peer end at once, inbound and outbound, and no others', async (t) => {
    const pki = await createTunnelPki();
    const mesh = await guarded(t, engine, pki);
    const fine = credentials(await pki.issue(CLIENT));
    const cut = await mesh.open();
    const kept = await mesh.open(fine);
    t.is(mesh.server.tracked, 2);
    const [cutInbound, keptInbound] = mesh.accepted;
    const reason = new Promise((resolve) => cutInbound?.duplex.once('error', resolve));
    await mesh.server.setRevocations(
      await lists(pki.root, { revoked: [mesh.sources.client.chainPem] }),
    );
    t.is(((await reason) as { code: string }).code, 'TLS_PEER_REVOKED');
    await cut.tunnel.closed;
    t.is(await mesh.fixture.tunnels[0]?.closed, 'destroyed');
    t.deepEqual(mesh.server.counters.rejections, { source: 0, destination: 1 });
    keptInbound?.duplex.end('still here');
    t.is((await roundTrip(kept.stream, '')).toString(), 'still here');

    const second = await mesh.open(fine);
    const outbound = new Promise((resolve) => second.stream.duplex.once('error', resolve));
    await mesh.client.setRevocations(
      await lists(pki.root, { revoked: [mesh.sources.server.chainPem] }),
    );
    t.is(((await outbound) as { code: string }).code, 'TLS_PEER_REVOKED');
    t.is(await second.tunnel.closed, 'destroyed');
    t.true(mesh.client.counters.rejections.source >= 1);
    await until(() => mesh.client.tracked === 0, { what: 'the tunnels to be forgotten' });
  });

  // spec: hbone.md §4
  test('a revoked intermediate drops the live tunnels below it', async (t) => {
    const pki = await createTunnelPki();
    const mesh = await guarded(t, engine, pki, { intermediate: true });
    const direct = await mesh.open(credentials(await pki.issue(CLIENT)));
    const below = [await mesh.open(), await mesh.open()];
    const middle = pki.middle.certificate.toString();
    await mesh.server.setRevocations(await lists(pki.root, { revoked: [middle] }));
    await Promise.all(below.map(({ tunnel }) => tunnel.closed));
    t.true(direct.tunnel.usable);
    t.is(mesh.server.counters.rejections.destination, 2);
  });

  // spec: hbone.md §4
  // Serial, so that no other test waits meanwhile.
  test.serial(
    'a list that says nothing of a live tunnel leaves it alone, also when its certificate has expired',
    async (t) => {
      const pki = await createTunnelPki();
      const mesh = await guarded(t, engine, pki);
      const short = credentials(await pki.issue(CLIENT, { lifeMs: 10_000 }));
      const { tunnel, stream } = await mesh.open(short);
      // The expired tunnel drains, and its streams go on.
      await until(() => !tunnel.usable, { timeoutMs: 30_000, what: 'the tunnel to drain' });
      await mesh.server.setRevocations(await lists(pki.root, { revoked: [Buffer.of(1)] }));
      await mesh.client.setRevocations(NO_REVOCATIONS);
      mesh.accepted[0]?.duplex.end('carried');
      t.is((await roundTrip(stream, '')).toString(), 'carried');
      t.is(mesh.server.counters.rejections.destination, 0);
    },
  );

  test('a list that comes while a handshake goes on is held against the tunnel that it makes', async (t) => {
    const pki = await createTunnelPki();
    const mesh = await guarded(t, engine, pki);
    const revoked = await lists(pki.root, { revoked: [mesh.sources.server.chainPem] });
    const trust = peerTrust();
    const late: HboneEngine = {
      ...engine,
      serve: (socket, options) => engine.serve(socket, options),
      connect: async (socket, options) => {
        const tunnel = await engine.connect(socket, options);
        void trust.setRevocations(revoked);
        return tunnel;
      },
    };
    const socket = await trust
      .guard(late)
      .connect(await dial(t, mesh.fixture.port), tunnelOptions(mesh.own.client));
    t.is(await socket.closed, 'destroyed');
    t.is(trust.counters.rejections.source, 1);
  });

  test('without lists configured nothing is looked for, and nothing is counted', async (t) => {
    const pki = await createTunnelPki();
    const mesh = await guarded(t, engine, pki);
    const plain = peerTrust(false);
    const { stream } = await mesh.open(mesh.own.client, plain);
    t.is(plain.tracked, 1);
    t.deepEqual(plain.counters.untracked, { source: 0, destination: 0 });
    stream.reset();
  });
}

function unread(test: TestFn, engine: HboneEngine): void {
  test('a destroyed tunnel closes although its peer reads nothing', async (t) => {
    const pki = await createTunnelPki();
    const own = credentials(await pki.issue(SERVER));
    const fixture = await serveTunnels(t, engine, tunnelOptions(own), (incoming) => {
      const stream = incoming.accept({});
      stream?.duplex.on('error', () => {});
      stream?.duplex.write(Buffer.alloc(16 * 1_048_576));
      return Promise.resolve();
    });
    const raw = await dial(t, fixture.port);
    const window = [settingId.initialWindowSize, 0x7fff_ffff] as const;
    const deaf = await hostilePeer(raw, credentials(await pki.issue(CLIENT)), {
      read: false,
      settings: [window],
    });
    await deaf.send([windowUpdateFrame(0, 0x7000_0000), connectFrame(1, '10.0.0.1:80')]);
    await until(() => (fixture.tunnels[0]?.streams ?? 0) === 1, { what: 'the stream' });
    fixture.tunnels[0]?.destroy();
    t.is(await fixture.tunnels[0]?.closed, 'destroyed');
  });
}

/** Accepts a request, and leaves its stream open. */
function keepOpen(incoming: IncomingRequest): Promise<void> {
  incoming.accept({})?.duplex.on('error', () => {});
  return Promise.resolve();
}

function roots(test: TestFn, engine: HboneEngine): void {
  test('a peer whose root is removed drains, and is cut when the time is up; others go on', async (t) => {
    const [old, fresh] = [await createTunnelPki('old'), await createTunnelPki('new')];
    const both = old.rootPem + fresh.rootPem;
    const trust = peerTrust(false, 200);
    const server = await fresh.issue(SERVER, { rootsPem: both });
    const serving = tunnelOptions(credentials(server));
    const fixture = await serveTunnels(t, trust.guard(engine), serving, keepOpen);
    const [distrusted, trusted] = await Promise.all(
      [old, fresh].map(async (pki) => {
        const own = credentials(await pki.issue(CLIENT, { rootsPem: both }));
        const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(own));
        const stream = await tunnel.open(request);
        stream.duplex.on('error', () => {});
        return { tunnel, stream };
      }),
    );
    const gone = distrusted === undefined ? null : closedBy(distrusted.stream.duplex);
    await trust.rootsChanged(credentials({ ...server, rootsPem: fresh.rootPem }));
    await until(() => distrusted?.tunnel.usable === false, { what: 'the drain' });
    await gone;
    await distrusted?.tunnel.closed;
    t.deepEqual(trust.counters.distrusted, { source: 0, destination: 1 });
    t.true(trusted?.tunnel.usable);
    await until(() => trust.tracked === 1, { what: 'the tunnel to be forgotten' });
  });

  test('streams go on when the roots are put right within the time', async (t) => {
    const [old, fresh] = [await createTunnelPki('old'), await createTunnelPki('new')];
    const clock = new FakeClock();
    const trust = peerTrust(false, HOUR_MS, clock);
    const server = await old.issue(SERVER);
    const serving = tunnelOptions(credentials(server));
    const fixture = await serveTunnels(t, trust.guard(engine), serving, keepOpen);
    const own = tunnelOptions(credentials(await old.issue(CLIENT)));
    const tunnel = await openTunnel(t, engine, fixture.port, own);
    const { duplex } = await tunnel.open(request);
    duplex.on('error', () => {});
    await trust.rootsChanged(credentials({ ...server, rootsPem: fresh.rootPem }));
    // Distrusted still, so neither counted nor timed again.
    await trust.rootsChanged(credentials({ ...server, rootsPem: fresh.rootPem + fresh.rootPem }));
    t.deepEqual(trust.counters.distrusted, { source: 0, destination: 1 });
    await clock.advance(HOUR_MS - 1);
    await trust.rootsChanged(credentials({ ...server, rootsPem: old.rootPem + fresh.rootPem }));
    await clock.advance(HOUR_MS);
    t.is(fixture.tunnels[0]?.streams, 1);
    await trust.rootsChanged(credentials({ ...server, rootsPem: fresh.rootPem }));
    t.deepEqual(trust.counters.distrusted, { source: 0, destination: 2 });
    const gone = closedBy(duplex);
    await clock.advance(HOUR_MS);
    await gone;
  });

  test('however many identities and tunnels changed roots concern, a turn verifies a few', async (t) => {
    const [old, fresh] = [await createTunnelPki('old'), await createTunnelPki('new')];
    const trust = peerTrust(false);
    const client = credentials(await old.issue(CLIENT, { rootsPem: old.rootPem + fresh.rootPem }));
    const sources = await Promise.all(
      ['a', 'b', 'c'].map((name) =>
        fresh.issue(`${SERVER}-${name}`, { rootsPem: old.rootPem + fresh.rootPem }),
      ),
    );
    const count = 2 * REVERIFIED_PER_TURN;
    for (const [index, source] of sources.entries()) {
      const own = tunnelOptions(credentials(source));
      const fixture = await serveTunnels(t, trust.guard(engine), own, () => Promise.resolve());
      const expected = Math.ceil(((index + 1) * count) / sources.length);
      for (let made = trust.tracked; made < expected; made += 1) {
        await openTunnel(t, engine, fixture.port, tunnelOptions(client));
      }
      await until(() => trust.tracked === expected, { what: 'the tunnels' });
    }
    const changed = sources.map((source) =>
      trust.rootsChanged(credentials({ ...source, rootsPem: fresh.rootPem })),
    );
    const ended = Promise.all(changed).then(() => true);
    const seen = [0];
    while (!(await Promise.race([ended, turn(false)]))) {
      seen.push(trust.counters.distrusted.destination);
    }
    seen.push(trust.counters.distrusted.destination);
    t.is(seen.at(-1), count);
    const steps = seen.slice(1).map((total, index) => total - (seen[index] ?? 0));
    t.true(Math.max(...steps) <= REVERIFIED_PER_TURN, steps.join());
  });

  test('a root renewed with its key keeps its peers, wherever the old one stands', async (t) => {
    const pki = await createTunnelPki();
    const old = await pki.outlivedRoot();
    const server = await pki.issue(SERVER);
    const trust = peerTrust();
    await trust.setRevocations(await lists(pki.root, { revoked: [Buffer.of(1)] }));
    for (const rootsPem of [old + pki.rootPem, pki.rootPem + old]) {
      const own = tunnelOptions(credentials({ ...server, rootsPem }));
      const fixture = await serveTunnels(t, trust.guard(engine), own, () => Promise.resolve());
      const client = tunnelOptions(credentials(await pki.issue(CLIENT)));
      const tunnel = await openTunnel(t, engine, fixture.port, client);
      await until(() => fixture.tunnels.length + fixture.failures.length === 1, {
        what: 'the handshake',
      });
      t.deepEqual(fixture.failures, []);
      await trust.rootsChanged(credentials({ ...server, rootsPem: rootsPem + rootsPem }));
      t.true(fixture.tunnels[0]?.usable);
      tunnel.destroy();
    }
    t.deepEqual(trust.counters.distrusted, { source: 0, destination: 0 });
  });

  test('a root that is younger than a tunnel keeps the tunnel', async (t) => {
    const pki = await createTunnelPki();
    const offset = { ms: 0 };
    const clock = { ...systemClock, now: () => systemClock.now() + offset.ms };
    const trust = peerTrust(false, 0, clock);
    const server = await pki.issue(SERVER);
    const own = tunnelOptions(credentials(server));
    const fixture = await serveTunnels(t, trust.guard(engine), own, () => Promise.resolve());
    const client = tunnelOptions(credentials(await pki.issue(CLIENT, { lifeMs: 12 * HOUR_MS })));
    const tunnel = await openTunnel(t, engine, fixture.port, client);
    await until(() => fixture.tunnels.length === 1, { what: 'the handshake' });
    offset.ms = 2 * HOUR_MS;
    await trust.rootsChanged(credentials({ ...server, rootsPem: await pki.renewedRoot() }));
    t.true(fixture.tunnels[0]?.usable);
    t.deepEqual(trust.counters.distrusted, { source: 0, destination: 0 });
    tunnel.destroy();
  });
}
