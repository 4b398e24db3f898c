/** A listener thread whose pods have the DNS proxy, and a name server for everything else. */
import { createSocket } from 'node:dgram';
import type { Socket } from 'node:dgram';
import { once } from 'node:events';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { openUdp } from '../../lib/linux/udp.ts';
import type { DnsSettings } from '../../workers/listener/protocol/settings.ts';
import { makeScratch } from './leftovers.ts';
import { TestMesh } from './listener-kit.ts';
import type { TestPod } from './listener-kit.ts';
import { startNameServer } from './name-server.ts';
import type { NameServer } from './name-server.ts';

/** The parts of a test of the DNS proxy. */
export interface DnsMesh {
  readonly mesh: TestMesh;
  readonly pod: TestPod;
  readonly upstream: NameServer;
}

/** The addresses of the hub, where the name server listens. */
export const UPSTREAM = ['10.9.0.1', 'fd09::1'] as const;

/** One pod, `client` of namespace `demo`, whose name servers are the hub's. */
export async function startDnsMesh(
  t: ExecutionContext,
  options: {
    readonly resolvConf?: string;
    readonly dns?: Partial<DnsSettings>;
    readonly settings?: Parameters<typeof TestMesh.start>[1];
  } = {},
): Promise<DnsMesh> {
  const scratch = await makeScratch('dns');
  t.teardown(() => rm(scratch, { recursive: true }));
  const resolvConf = join(scratch, 'resolv.conf');
  await writeFile(resolvConf, options.resolvConf ?? 'nameserver 10.9.0.1\noptions timeout:10\n');
  const mesh = await TestMesh.start(t, {
    threads: 1,
    logLevel: 'debug',
    resolvConf,
    dns: {
      address: null,
      port: 15_053,
      preferredNamespace: null,
      searchDomains: null,
      ...options.dns,
    },
    ...options.settings,
  });
  const upstream = await startNameServer(t, mesh.hub, UPSTREAM);
  const pod = await mesh.addPod('client', {
    workload: { canonicalName: 'client-app', canonicalRevision: 'v1' },
  });
  return { mesh, pod, upstream };
}

/** Runs `dig`, with `+short` unless other words are given, and returns the lines that it prints. */
export async function dig(pod: TestPod, words: string, flags = '+short'): Promise<string[]> {
  const text = await pod.netns.exec(
    'dig',
    '+tries=1',
    '+time=60',
    ...flags.split(' '),
    ...words.split(' '),
  );
  return text.split('\n').filter((line) => line !== '');
}

/** A UDP socket inside the pod that asks the given server, as an application would. */
export async function dnsClient(
  t: ExecutionContext,
  pod: TestPod,
  server: string = UPSTREAM[0],
): Promise<Socket> {
  const family = server.includes(':') ? 6 : 4;
  const socket = createSocket({ type: family === 4 ? 'udp4' : 'udp6', recvBufferSize: 4_194_304 });
  socket.bind({ fd: openUdp({ netnsFd: pod.netnsFd, family, mark: 0 }) });
  socket.connect(53, server);
  await once(socket, 'connect');
  t.teardown(() => socket.close());
  return socket;
}
