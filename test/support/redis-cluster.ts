/** Runs a Redis Cluster of three masters, each with a replica, with users of every role and TLS on demand. */
import { execFileSync } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { Redis } from 'ioredis';
import { redisUsers } from '../../lib/bus/acl.ts';
import { writeAclFiles } from '../../lib/bus/acl-files.ts';
import type { BusConfig } from '../../lib/bus/config.ts';
import { makeScratch } from './leftovers.ts';
import { startServer } from './redis-sentinel.ts';
import { until } from './until.ts';

const MASTERS = 3;
const SLOTS = 16_384;
const FIRST_PORT = 7_000;

/** One server of the cluster. */
export interface ClusterServer {
  readonly port: number;
  /** A client as the user `admin`. */
  readonly client: Redis;
  readonly id: string;
  /** Sends SIGKILL. */
  kill(): Promise<void>;
  /** Sends SIGSTOP: the server keeps its connections and does not answer. */
  pause(): void;
  resume(): void;
}

/** The servers of a test; the end of the test stops them. */
export interface ClusterRedis {
  readonly prefix: string;
  /** Masters first; the replica of master n is server n + 3. */
  readonly servers: readonly ClusterServer[];
  config(user?: string): BusConfig;
  environment(user?: string): Record<string, string>;
  /** Finds the master and the slot of a hash tag of this mesh, `mesh` or a node's name. */
  masterOf(tag: string): Promise<{ readonly server: ClusterServer; readonly slot: number }>;
  /** Returns the replica that a master got at the start. */
  replicaOf(master: ClusterServer): ClusterServer;
  /** Cuts a master's replica off: it keeps running and receives no more updates. */
  cutReplica(master: ClusterServer): Promise<void>;
  /** Moves a slot with all its keys, as `redis-cli --cluster reshard` does. `between` runs halfway. */
  moveSlot(
    slot: number,
    from: ClusterServer,
    to: ClusterServer,
    between?: () => Promise<void>,
  ): Promise<void>;
}

/** Starts six servers and waits until each serves and each replica follows. */
export async function startClusterRedis(
  t: ExecutionContext,
  options: { readonly tls?: boolean; readonly lines?: readonly string[] } = {},
): Promise<ClusterRedis> {
  const dir = await makeScratch('cluster');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const prefix = `t${randomBytes(4).toString('hex')}`;
  const tls = options.tls === true;
  // The cluster gets its own loopback address, so that its ports are free.
  const [a = 0, b = 0, c = 0] = randomBytes(3);
  const host = `127.${a}.${b}.${Math.max(2, Math.min(c, 253))}`;
  const users = [
    ...redisUsers(['node-1', 'node-2']),
    { name: 'admin', role: 'admin', node: null } as const,
  ];
  const aclFile = join(dir, 'users.acl');
  const secretsDir = join(dir, 'secrets');
  const { passwordFiles } = await writeAclFiles({ users, prefix, secretsDir, aclFile });
  const passwordFile = (user: string): string => {
    const file = passwordFiles.get(user);
    if (file === undefined) throw new Error(`no Redis user ${user}`);
    return file;
  };
  const password = readFileSync(passwordFile('admin'), 'utf8').trim();
  if (tls) makeCertificate(dir, host);
  const common = [
    'cluster-enabled yes',
    `cluster-announce-ip ${host}`,
    `bind-source-addr ${host}`,
    'cluster-node-timeout 2000',
    'repl-diskless-sync-delay 0',
    'appendonly no',
    `aclfile ${aclFile}`,
    'masteruser admin',
    `masterauth ${password}`,
    ...(tls ? tlsLines(dir) : []),
    ...(options.lines ?? []),
  ];
  const children = Array.from({ length: 2 * MASTERS }, (_, index) => {
    const port = FIRST_PORT + index;
    const ports = tls ? ['port 0', `tls-port ${port}`] : [`port ${port}`];
    const folder = join(dir, String(index));
    mkdirSync(folder, { recursive: true });
    return startServer(t, folder, [...ports, ...common], 'server', host);
  });
  const ca = tls ? readFileSync(join(dir, 'cert.pem'), 'utf8') : null;
  const connect = (port: number): Redis => {
    const client = new Redis({
      host,
      port,
      username: 'admin',
      password,
      protocol: 2,
      ...(ca === null ? {} : { tls: { ca } }),
    });
    client.on('error', (error) => t.log(`redis client: ${error.message}`));
    t.teardown(() => client.disconnect());
    return client;
  };
  const servers = await Promise.all(
    children.map((child, index) => describe(child, FIRST_PORT + index, connect)),
  );
  await formCluster(host, servers);
  const replicaOf = (master: ClusterServer): ClusterServer => {
    const found = servers[servers.indexOf(master) + MASTERS];
    if (found === undefined) throw new Error('that is no master of the start');
    return found;
  };
  return {
    prefix,
    servers,
    replicaOf,
    config: (user = 'admin') => ({
      endpoint: {
        kind: 'cluster',
        nodes: servers.slice(0, 2).map(({ port }) => ({ host, port })),
        tls,
      },
      username: user,
      passwordFile: passwordFile(user),
      caFile: tls ? join(dir, 'cert.pem') : null,
      prefix,
    }),
    environment: (user = 'admin') => ({
      REDIS_URL: `${tls ? 'rediss' : 'redis'}+cluster://${host}:${FIRST_PORT},${host}:${FIRST_PORT + 1}`,
      REDIS_USERNAME: user,
      REDIS_PASSWORD_FILE: passwordFile(user),
      ...(tls ? { REDIS_CA_FILE: join(dir, 'cert.pem') } : {}),
      WEFT_REDIS_PREFIX: prefix,
    }),
    masterOf: async (tag) => {
      const slot = await live(servers).client.cluster('KEYSLOT', `${prefix}:{${tag}}`);
      const slots = await live(servers).client.cluster('SLOTS');
      const range = slots.find(([first, last]) => first <= slot && slot <= last);
      const server = servers.find(({ port }) => port === range?.[2]?.[1]);
      if (server === undefined) throw new Error(`nobody has slot ${slot}`);
      return { server, slot };
    },
    cutReplica: async (master) => {
      const { client } = replicaOf(master);
      // With a wrong password the replica cannot log in to its master.
      await client.config('SET', 'masterauth', 'wrong');
      await master.client.call('CLIENT', 'KILL', 'TYPE', 'replica');
      await until(async () => /master_link_status:down/.test(await client.info('replication')), {
        what: 'the replica to be cut off',
      });
    },
    moveSlot: (slot, from, to, between) =>
      moveSlot({ slot, from, to, host, password }, servers, between),
  };
}

async function describe(
  child: ChildProcess,
  port: number,
  connect: (port: number) => Redis,
): Promise<ClusterServer> {
  const client = connect(port);
  const id = await until(() => client.cluster('MYID'), { what: `the server of port ${port}` });
  return {
    port,
    client,
    id,
    pause: () => void child.kill('SIGSTOP'),
    resume: () => void child.kill('SIGCONT'),
    kill: async () => {
      const ended = once(child, 'exit');
      child.kill('SIGKILL');
      await ended;
      client.disconnect();
    },
  };
}

/** Joins the servers into one cluster. */
async function formCluster(host: string, servers: readonly ClusterServer[]): Promise<void> {
  const masters = servers.slice(0, MASTERS);
  await Promise.all(
    masters.map(({ client }, index) => {
      const first = Math.floor((index * SLOTS) / MASTERS);
      const last = Math.floor(((index + 1) * SLOTS) / MASTERS) - 1;
      return client.call('CLUSTER', 'ADDSLOTSRANGE', String(first), String(last));
    }),
  );
  const [first] = servers;
  for (const [index, { client, port }] of servers.entries()) {
    // Two masters with the same epoch resolve the conflict themselves, but later.
    await client.call('CLUSTER', 'SET-CONFIG-EPOCH', String(index + 1));
    if (first !== undefined && port !== first.port) {
      await first.client.call('CLUSTER', 'MEET', host, String(port));
    }
  }
  for (const [index, master] of masters.entries()) {
    const replica = servers[index + MASTERS]?.client;
    await until(() => replica?.call('CLUSTER', 'REPLICATE', master.id), {
      what: 'the replica to know its master',
    });
  }
  await until(
    async () => {
      const states = await Promise.all(
        servers.map(async ({ client }) => ({
          cluster: await client.cluster('INFO'),
          replication: await client.info('replication'),
          slots: (await client.cluster('SLOTS')) as unknown[][],
        })),
      );
      return states.every(
        ({ cluster, replication, slots }) =>
          /cluster_state:ok/.test(cluster) &&
          /cluster_known_nodes:6/.test(cluster) &&
          (/role:master/.test(replication) || /master_link_status:up/.test(replication)) &&
          slots.length === MASTERS &&
          slots.every((slot) => slot.length === 4),
      );
    },
    { what: 'the cluster', timeoutMs: 30_000 },
  );
}

/** Finds a server that answers. */
function live(servers: readonly ClusterServer[]): ClusterServer {
  const found = servers.find(({ client }) => client.status === 'ready');
  if (found === undefined) throw new Error('no server of the cluster answers');
  return found;
}

async function moveSlot(
  move: {
    readonly slot: number;
    readonly from: ClusterServer;
    readonly to: ClusterServer;
    readonly host: string;
    readonly password: string;
  },
  servers: readonly ClusterServer[],
  between?: () => Promise<void>,
): Promise<void> {
  const { from, host, password, to } = move;
  const slot = String(move.slot);
  await to.client.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', from.id);
  await from.client.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', to.id);
  for (let half = true; ; half = false) {
    const keys = (await from.client.call('CLUSTER', 'GETKEYSINSLOT', slot, '1000')) as string[];
    if (keys.length === 0) break;
    const moved = half && between !== undefined ? keys.slice(0, keys.length >> 1) : keys;
    if (moved.length > 0) {
      const target = [host, String(to.port), '', '0', '5000', 'AUTH2', 'admin', password];
      await from.client.call('MIGRATE', ...target, 'KEYS', ...moved);
    }
    if (half) await between?.();
  }
  for (const { client } of [to, from, ...servers]) {
    if (client.status !== 'ready' || !/role:master/.test(await client.info('replication')))
      continue;
    await client.call('CLUSTER', 'SETSLOT', slot, 'NODE', to.id);
  }
}

function makeCertificate(dir: string, host: string): void {
  const request = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1';
  const names = `-subj /CN=redis -addext subjectAltName=IP:${host}`;
  const files = '-keyout key.pem -out cert.pem';
  execFileSync('openssl', `${request} ${names} ${files}`.split(' '), { cwd: dir, stdio: 'ignore' });
}

function tlsLines(dir: string): readonly string[] {
  return [
    `tls-cert-file ${dir}/cert.pem`,
    `tls-key-file ${dir}/key.pem`,
    `tls-ca-cert-file ${dir}/cert.pem`,
    'tls-auth-clients no',
    'tls-cluster yes',
    'tls-replication yes',
  ];
}
