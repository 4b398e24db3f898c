/** Runs etcd and an API server as children of this process. */
import { spawn } from 'node:child_process';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { createWriteStream } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { ownPort } from '../../support/ports.ts';
import { until } from '../../support/until.ts';
import type { KubernetesPrograms } from './programs.ts';

/** A running API server, as plain data. */
export interface ApiServer {
  readonly url: string;
  /** The port in its own network namespace. */
  readonly port: number;
  readonly caPem: string;
  /** A member of system:masters. */
  readonly adminToken: string;
  /** Address of etcd, for tests that compact its history. */
  readonly etcdUrl: string;
  /** One line of JSON for each request. */
  readonly auditLog: string;
  /** Holds logs and keys. */
  readonly directory: string;
}

/** The issuer of service accounts' tokens. */
export const TOKEN_ISSUER = 'https://kubernetes.default.svc';

/** Resources whose watches come from etcd itself, so that a compacted history ends them at once. */
export const UNCACHED_RESOURCE = {
  group: '',
  versions: ['v1'],
  plural: 'podtemplates',
  namespaced: true,
} as const;

const AUDIT_POLICY = JSON.stringify({
  apiVersion: 'audit.k8s.io/v1',
  kind: 'Policy',
  omitStages: ['RequestReceived', 'ResponseStarted'],
  rules: [{ level: 'Metadata' }],
});

/** Where a server stands that machines of a cluster reach. */
export interface ServerPlace {
  /** Path of the network namespace in which etcd and the server run. */
  readonly netns: string;
  /** The address in it that the nodes use. */
  readonly address: string;
  /** Makes a port of that namespace reachable from here; returns the address for it. */
  reach(port: number): Promise<string>;
  /** Accounts besides the administrator's, as lines of a token file: token, name, uid, groups. */
  readonly accounts: readonly string[];
  /** Ends both programs. */
  readonly signal: AbortSignal;
}

/** A server on loopback alone. No controller manager makes the accounts that the plugin ServiceAccount asks for. */
const ALONE = [
  '--bind-address=127.0.0.1',
  '--advertise-address=127.0.0.1',
  '--authorization-mode=RBAC',
  '--disable-admission-plugins=ServiceAccount',
];

/** A server with nodes. It calls webhooks by the addresses of pods, because it is on no node that knows the services'. */
const WITH_NODES = [
  '--bind-address=0.0.0.0',
  '--authorization-mode=Node,RBAC',
  '--enable-admission-plugins=NodeRestriction',
  '--allow-privileged=true',
  '--enable-aggregator-routing=true',
  '--kubelet-preferred-address-types=InternalIP',
];

/**
 * Starts both, with a place in the network of a cluster, or alone; they end with the thread that starts them. Throws when one of
 * them ends while it starts.
 */
export async function startApiServer(
  programs: Pick<KubernetesPrograms, 'etcd' | 'apiServer'>,
  place?: ServerPlace,
): Promise<ApiServer> {
  const directory = await makeScratch('kubernetes');
  const etcdUrl = `http://127.0.0.1:${await ownPort()}`;
  const peerUrl = `http://127.0.0.1:${await ownPort()}`;
  const port = await ownPort();
  const adminToken = randomBytes(16).toString('hex');
  const auditLog = join(directory, 'audit.log');
  const path = (name: string): string => join(directory, name);
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const accounts = [`${adminToken},admin,admin,system:masters`, ...(place?.accounts ?? [])];
  await Promise.all([
    writeFile(path('tokens.csv'), `${accounts.join('\n')}\n`),
    writeFile(path('audit.yaml'), AUDIT_POLICY),
    writeFile(auditLog, ''),
    writeFile(path('sa.key'), privateKey.export({ type: 'sec1', format: 'pem' })),
    writeFile(path('sa.pub'), publicKey.export({ type: 'spki', format: 'pem' })),
  ]);
  const etcd = launch(programs.etcd, { directory, place }, [
    `--data-dir=${path('etcd')}`,
    `--listen-client-urls=${etcdUrl}`,
    `--advertise-client-urls=${etcdUrl}`,
    `--listen-peer-urls=${peerUrl}`,
    `--initial-advertise-peer-urls=${peerUrl}`,
    `--initial-cluster=default=${peerUrl}`,
    // Nothing here outlives the run.
    '--unsafe-no-fsync',
    '--log-level=warn',
  ]);
  const server = launch(programs.apiServer, { directory, place }, [
    `--etcd-servers=${etcdUrl}`,
    ...(place === undefined ? ALONE : [...WITH_NODES, `--advertise-address=${place.address}`]),
    `--secure-port=${port}`,
    `--cert-dir=${path('serving')}`,
    `--token-auth-file=${path('tokens.csv')}`,
    '--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112',
    `--service-account-issuer=${TOKEN_ISSUER}`,
    `--service-account-signing-key-file=${path('sa.key')}`,
    `--service-account-key-file=${path('sa.pub')}`,
    '--api-audiences=kubernetes,istio-ca',
    `--watch-cache-sizes=${UNCACHED_RESOURCE.plural}#0`,
    `--audit-policy-file=${path('audit.yaml')}`,
    `--audit-log-path=${auditLog}`,
    '--audit-log-mode=blocking',
  ]);
  const url = (await place?.reach(port)) ?? `https://127.0.0.1:${port}`;
  const caPem = await Promise.race([
    etcd,
    server,
    until(() => answer(url, path('serving/apiserver.crt'), adminToken), {
      what: 'the API server is ready',
    }),
  ]);
  return { url, port, caPem, adminToken, etcdUrl, auditLog, directory };
}

/** Starts a program. The promise rejects when it ends, and never resolves. */
async function launch(
  program: string,
  { directory, place }: { readonly directory: string; readonly place: ServerPlace | undefined },
  args: readonly string[],
): Promise<never> {
  const name = program.split('/').at(-1) ?? program;
  const logFile = join(directory, `${name}.log`);
  const enter = place === undefined ? [] : ['nsenter', `--net=${place.netns}`];
  const child = spawn('setpriv', ['--pdeathsig', 'KILL', ...enter, program, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    cwd: directory,
    ...(place === undefined ? {} : { signal: place.signal, killSignal: 'SIGKILL' }),
  });
  const log = createWriteStream(logFile, { flags: 'a' });
  for (const output of [child.stdout, child.stderr]) output.pipe(log, { end: false });
  await once(child, 'close');
  const lines = (await readFile(logFile, 'utf8')).trim().split('\n').slice(-5);
  throw new Error(`${name} ended with ${child.exitCode ?? child.signalCode}: ${lines.join(' | ')}`);
}

/** Returns the roots of a server that is ready. */
async function answer(url: string, certificate: string, token: string): Promise<string | null> {
  const ca = await readFile(certificate, 'utf8');
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const headers = { authorization: `Bearer ${token}` };
  request(`${url}/readyz`, { ca, headers, agent: false }, (response) => {
    response.resume();
    resolve(response.statusCode ?? 0);
  })
    .on('error', (error) => reject(new Error(errorText(error))))
    .end();
  return (await promise) === 200 ? ca : null;
}
