/**
 * Carries 100 streams at once, both ways and with checksums, while certificates rotate and keys change. Takes a few seconds;
 * WEFT_CARRY_SECONDS sets a longer time, with a change of keys each 64 MiB.
 */
import { createHash, randomBytes, randomInt } from 'node:crypto';
import { readdirSync } from 'node:fs';
import type { Socket } from 'node:net';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { processEnvironment } from '../../lib/config/env.ts';
import { carriedEngine } from '../../lib/hbone/carried/engine.ts';
import type { ClientTunnel } from '../../lib/hbone/engine.ts';
import { carryStats } from '../../lib/linux/carry.ts';
import { RawSocket } from '../../lib/net/raw-socket.ts';
import { socketPair } from '../support/socket-pair.ts';
import { MIB, openTunnel, serveTunnels, tunnelOptions } from '../support/tunnel-kit.ts';
import { CLIENT, SERVER, createTunnelPki, credentials } from '../support/tunnel-pki.ts';
import type { TunnelPki } from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';

const SHORT_SECONDS = 2;
const seconds = Number(processEnvironment()['WEFT_CARRY_SECONDS'] ?? SHORT_SECONDS);
/** Full records of 64 MiB; of 2 MiB in the short form. */
const REKEY_RECORDS = seconds > SHORT_SECONDS ? 4_096 : 128;
const STREAMS = 100;
const ROTATIONS = 10;
const LARGEST_BYTES = 4 * MIB;
/** Content of all streams, from any place on. */
const CONTENT = randomBytes(LARGEST_BYTES + MIB);

interface Totals {
  streams: number;
  bytes: number;
  rotations: number;
}

/** Sends some bytes and ends; returns their digest. */
function send(socket: Socket): string {
  const from = randomInt(MIB);
  const bytes = CONTENT.subarray(from, from + randomInt(LARGEST_BYTES));
  socket.end(bytes);
  return createHash('sha256').update(bytes).digest('hex');
}

/** Reads to the end; returns the digest of the bytes. */
async function receive(socket: Socket, totals: Totals): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    hash.update(chunk as Buffer);
    totals.bytes += (chunk as Buffer).length;
  }
  return hash.digest('hex');
}

/** Begins a tunnel under new certificates of both sides. Its server sends and reads on each stream, and names the digests. */
async function newTunnel(
  t: ExecutionContext,
  pki: TunnelPki,
  totals: Totals,
  digests: Map<string, Promise<readonly [sent: string, received: string]>>,
): Promise<ClientTunnel> {
  const [client, server] = await Promise.all([pki.issue(CLIENT), pki.issue(SERVER)]);
  const limits = { maxStreams: 2 * STREAMS };
  const options = (source: typeof client) => ({
    ...tunnelOptions(credentials(source), limits),
    rekeyRecords: REKEY_RECORDS,
  });
  const fixture = await serveTunnels(t, carriedEngine, options(server), async (incoming) => {
    const { near, far } = await socketPair(t);
    incoming.accept({})?.carry?.(new RawSocket(near), 'b');
    const sent = send(far);
    digests.set(
      incoming.authority,
      receive(far, totals).then((received) => [sent, received] as const),
    );
  });
  return openTunnel(t, carriedEngine, fixture.port, options(client));
}

test.serial(
  'checksums hold on 100 streams at once while certificates rotate and keys change',
  async (t) => {
    t.timeout((seconds + 120) * 1_000);
    const pki = await createTunnelPki();
    const totals: Totals = { streams: 0, bytes: 0, rotations: 0 };
    const digests = new Map<string, Promise<readonly [string, string]>>();
    const descriptors = readdirSync('/proc/self/fd').length;
    let tunnel = await newTunnel(t, pki, totals, digests);
    const endsAt = performance.now() + seconds * 1_000;

    const stream = async (name: string): Promise<void> => {
      const { near, far } = await socketPair(t);
      const opened = await tunnel.open({ authority: name, headers: {} });
      const copy = opened.carry?.(new RawSocket(near), 'a');
      const sent = send(far);
      const received = await receive(far, totals);
      t.deepEqual(await digests.get(name), [received, sent]);
      t.deepEqual(await copy?.done, { error: null });
      digests.delete(name);
      totals.streams += 1;
    };
    const loop = async (number: number): Promise<void> => {
      for (let n = 0; totals.rotations < ROTATIONS || performance.now() < endsAt; n += 1) {
        await stream(`stream-${number}-${n}:80`);
      }
    };
    const rotate = async (): Promise<void> => {
      const from = performance.now();
      for (let n = 1; n <= ROTATIONS; n += 1) {
        const due = from + (n * seconds * 1_000) / (ROTATIONS + 1);
        const before = totals.streams;
        await until(() => performance.now() >= due && totals.streams > before, {
          what: `streams before rotation ${n}`,
          timeoutMs: (seconds + 60) * 1_000,
        });
        const old = tunnel;
        tunnel = await newTunnel(t, pki, totals, digests);
        old.drain();
        totals.rotations += 1;
      }
    };
    await Promise.all([rotate(), ...Array.from({ length: STREAMS }, (_, n) => loop(n))]);
    const { updatesRead, updatesWritten } = carryStats();
    t.log(
      `${totals.streams} streams, ${Math.round(totals.bytes / MIB)} MiB, ${totals.rotations} rotations, ` +
        `${updatesWritten} KeyUpdates written and ${updatesRead} read in ${seconds} s`,
    );
    t.is(totals.rotations, ROTATIONS);
    t.true(updatesWritten >= ROTATIONS && updatesRead === updatesWritten);
    tunnel.destroy();
    await until(() => carryStats().links === 0, { what: 'all links to end' });
    t.is(carryStats().streams, 0);
    // The servers of the tunnels still listen.
    await until(() => readdirSync('/proc/self/fd').length <= descriptors + ROTATIONS + 10, {
      what: 'descriptors to be closed',
    });
  },
);
