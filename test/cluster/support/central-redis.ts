/** A Redis for all nodes: its Secrets, a volume, and a server outside of the chart. */
import { execFile } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { present } from '../../../lib/errors/assert.ts';
import { WEFT_IMAGE } from '../../support/weft-image.ts';
import type { TestCluster } from './cluster.ts';
import { rolledOut } from './pods.ts';
import { SYSTEM } from './weft.ts';

const run = promisify(execFile);
const SCRIPT = new URL('../../../infra/redis/users.ts', import.meta.url).pathname;
/** Where the volume is on its node. */
const VOLUME_PATH = '/srv/redis';

/** Secrets for the values redis.usersSecret and redis.tlsSecret. */
export const SECRETS = { users: 'weft-redis-users', tls: 'weft-redis-tls' } as const;

/** Makes the Secrets of a server at a host in a namespace: users as docs/kubernetes.md tells, and a certificate. */
export async function makeSecrets(
  cluster: TestCluster,
  namespaces: readonly string[],
  host: string,
): Promise<void> {
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
  for (const namespace of namespaces) {
    const create = ['-n', namespace, 'create', 'secret', 'generic'];
    await cluster.kubectl(...create, SECRETS.users, `--from-file=${users}/secrets`, acl);
    await cluster.kubectl(...create, SECRETS.tls, ...from);
  }
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

/** Runs a server in a namespace that has the Secrets, as Service `redis`. */
export async function runServer(cluster: TestCluster, namespace: string): Promise<void> {
  const labels = { app: 'redis' };
  const options = {
    port: '0',
    'tls-port': '6379',
    'tls-auth-clients': 'no',
    'tls-cert-file': '/tls/tls.crt',
    'tls-key-file': '/tls/tls.key',
    'tls-ca-cert-file': '/tls/ca.crt',
    aclfile: '/users/users.acl',
    save: '',
  };
  const words = Object.entries(options).flatMap(([name, value]) => [`--${name}`, value]);
  const command = ['redis-server', ...words];
  const metadata = { name: 'redis', namespace };
  const secrets = { tls: SECRETS.tls, users: SECRETS.users };
  const names = Object.entries(secrets);
  await cluster.objects.apply(
    {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata,
      spec: {
        selector: { matchLabels: labels },
        template: {
          metadata: { labels },
          spec: {
            containers: [
              {
                name: 'redis',
                image: WEFT_IMAGE,
                imagePullPolicy: 'Never',
                command,
                workingDir: '/tmp',
                volumeMounts: names.map(([name]) => ({ name, mountPath: `/${name}` })),
              },
            ],
            volumes: names.map(([name, secretName]) => ({ name, secret: { secretName } })),
          },
        },
      },
    },
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata,
      spec: { selector: labels, ports: [{ port: 6379 }] },
    },
  );
  await rolledOut(cluster, namespace, 'deployment/redis');
}
