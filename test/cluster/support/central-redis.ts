/** Makes the Secrets and the volume of a Redis for all nodes. */
import { execFile } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { present } from '../../../lib/errors/assert.ts';
import type { TestCluster } from './cluster.ts';
import { SYSTEM } from './weft.ts';

const run = promisify(execFile);
const SCRIPT = new URL('../../../infra/redis/users.ts', import.meta.url).pathname;
/** Where the volume is on its node. */
const VOLUME_PATH = '/srv/redis';

/** Secrets for the values redis.usersSecret and redis.tlsSecret. */
export const SECRETS = { users: 'weft-redis-users', tls: 'weft-redis-tls' } as const;

/** Makes the Secrets of a server at a host: users as docs/kubernetes.md tells, and a certificate. */
export async function makeSecrets(cluster: TestCluster, host: string): Promise<void> {
  const folder = join(cluster.folder, host);
  const users = join(folder, 'users');
  const nodes = cluster.network.nodes.map(({ name }) => name).join(',');
  await run(process.execPath, [SCRIPT, '--out', users, '--nodes', nodes]);
  await rm(join(users, 'secrets/admin'));
  const [key, certificate] = [join(folder, 'tls.key'), join(folder, 'tls.crt')];
  const request = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1';
  const names = `-subj /CN=redis -addext subjectAltName=DNS:${host}`;
  await run('openssl', `${request} ${names} -keyout ${key} -out ${certificate}`.split(' '));
  const parts = { 'ca.crt': certificate, 'tls.crt': certificate, 'tls.key': key };
  const from = Object.entries(parts).map(([name, path]) => `--from-file=${name}=${path}`);
  const acl = `--from-file=${users}/users.acl`;
  const create = ['-n', SYSTEM, 'create', 'secret', 'generic'];
  await cluster.kubectl(...create, SECRETS.users, `--from-file=${users}/secrets`, acl);
  await cluster.kubectl(...create, SECRETS.tls, ...from);
}

/** Removes the Secrets again. */
export async function removeSecrets(cluster: TestCluster): Promise<void> {
  await cluster.kubectl('-n', SYSTEM, 'delete', 'secret', SECRETS.users, SECRETS.tls);
}

/** Offers the claim of the chart's server a folder of the first node. */
export async function offerVolume(cluster: TestCluster): Promise<void> {
  const node = present(cluster.nodes[0], 'a node');
  await node.exec('mkdir', '-p', VOLUME_PATH);
  const here = { key: 'kubernetes.io/hostname', operator: 'In', values: [node.place.name] };
  await cluster.objects.apply({
    apiVersion: 'v1',
    kind: 'PersistentVolume',
    metadata: { name: 'redis' },
    spec: {
      capacity: { storage: '1Gi' },
      accessModes: ['ReadWriteOnce'],
      local: { path: VOLUME_PATH },
      nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions: [here] }] } },
    },
  });
}
