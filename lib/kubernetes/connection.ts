/** Address and credentials of the API server: a kubeconfig file, or the service account of the pod. */
import { readFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { parse } from 'yaml';
import { z } from 'zod';
import { readBounded } from '../files/bounded-file.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';

/** Text, or a file that holds it and may be replaced at any time. */
export type Material =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'file'; readonly path: string };

/** Where the API server is and how the client proves itself. */
export interface KubernetesConnection {
  readonly server: URL;
  /** The name that the server's certificate must carry; null for the host of {@link server}. */
  readonly serverName: string | null;
  /** PEM; null for the machine's roots. */
  readonly ca: Material | null;
  readonly token: Material | null;
  /** PEM; null without a client certificate. */
  readonly client: { readonly certificate: Material; readonly key: Material } | null;
  /** The namespace of the service account or of the context; null when unknown. */
  readonly namespace: string | null;
}

/** Folder that kubelet mounts into each pod. */
const SERVICE_ACCOUNT_DIR = '/var/run/secrets/kubernetes.io/serviceaccount';
const MAX_KUBECONFIG_BYTES = 1024 * 1024;

/** Where {@link findConnection} looks. */
export interface ConnectionSource {
  /** Path of a kubeconfig file; null for the service account. */
  readonly kubeconfig: string | null;
  /** `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`; null outside a pod. */
  readonly serviceHost: string | null;
  readonly servicePort: number | null;
  /** Folder of the service account's files; kubelet's by default. */
  readonly accountDir?: string;
}

/** Finds the API server. Throws CONFIG_INVALID that names the file and the field when there is none. */
export async function findConnection(source: ConnectionSource): Promise<KubernetesConnection> {
  if (source.kubeconfig !== null) return readKubeconfig(source.kubeconfig);
  if (source.serviceHost === null) {
    throw new MeshError(
      'CONFIG_INVALID',
      'no API server: set KUBECONFIG, or run in a pod (KUBERNETES_SERVICE_HOST is not set)',
    );
  }
  const host = source.serviceHost.includes(':') ? `[${source.serviceHost}]` : source.serviceHost;
  const dir = source.accountDir ?? SERVICE_ACCOUNT_DIR;
  const namespace = await readFile(join(dir, 'namespace'), 'utf8').catch((error: unknown) => {
    throw new MeshError(
      'CONFIG_INVALID',
      `the pod has no service account in ${dir} (is automountServiceAccountToken off?): ${errorText(error)}`,
      { cause: error },
    );
  });
  return {
    server: new URL(`https://${host}:${source.servicePort ?? 443}`),
    serverName: null,
    ca: { kind: 'file', path: join(dir, 'ca.crt') },
    token: { kind: 'file', path: join(dir, 'token') },
    client: null,
    namespace: namespace.trim(),
  };
}

/** Reads text, trimmed. Throws an Error when the file cannot be read. */
export async function readMaterial(material: Material): Promise<string> {
  const text = material.kind === 'text' ? material.text : await readFile(material.path, 'utf8');
  return text.trim();
}

const named = <Shape extends z.ZodRawShape>(key: string, shape: Shape) =>
  z.array(z.looseObject({ name: z.string(), [key]: z.looseObject(shape) }));

const kubeconfigSchema = z.looseObject({
  'current-context': z.string().default(''),
  clusters: named('cluster', {}).default([]),
  contexts: named('context', {}).default([]),
  users: named('user', {}).default([]),
});

const clusterSchema = z.looseObject({
  server: z.url({ protocol: /^https$/, error: 'must be an https URL' }),
  'certificate-authority': z.string().optional(),
  'certificate-authority-data': z.base64().optional(),
  'tls-server-name': z.string().optional(),
  'insecure-skip-tls-verify': z.boolean().optional(),
  'proxy-url': z.string().optional(),
});
const contextSchema = z.looseObject({
  cluster: z.string(),
  user: z.string(),
  namespace: z.string().optional(),
});
const userSchema = z.looseObject({
  token: z.string().optional(),
  tokenFile: z.string().optional(),
  'client-certificate': z.string().optional(),
  'client-certificate-data': z.base64().optional(),
  'client-key': z.string().optional(),
  'client-key-data': z.base64().optional(),
});

/** Ways of kubectl that need another program or weaken the connection. */
const UNSUPPORTED = {
  cluster: ['insecure-skip-tls-verify', 'proxy-url'],
  user: ['exec', 'auth-provider', 'username', 'as'],
} as const;

/**
 * Reads the current context of a kubeconfig file. Throws CONFIG_INVALID that names the field, and CONFIG_UNSUPPORTED for
 * credentials by another program, a proxy, or a server that is not verified.
 */
export async function readKubeconfig(path: string): Promise<KubernetesConnection> {
  const invalid = (why: string, cause?: unknown): MeshError =>
    new MeshError('CONFIG_INVALID', `kubeconfig ${path}: ${why}`, { cause });
  let content: unknown;
  try {
    content = parse((await readBounded(path, MAX_KUBECONFIG_BYTES)).toString('utf8'));
  } catch (error) {
    throw invalid(errorText(error), error);
  }
  const checked = <T>(schema: z.ZodType<T>, value: unknown, place: string): T => {
    const result = schema.safeParse(value);
    if (result.success) return result.data;
    const [issue] = result.error.issues;
    throw invalid(`${[place, ...(issue?.path ?? [])].join('.')}: ${issue?.message ?? 'unusable'}`);
  };
  const file = checked(kubeconfigSchema, content, 'file');
  const part = (list: readonly Record<string, unknown>[], key: string, name: string): unknown => {
    const found = list.find((item) => item['name'] === name);
    if (found === undefined) throw invalid(`there is no ${key} named ${JSON.stringify(name)}`);
    return found[key];
  };
  const contextName = file['current-context'];
  const context = checked(contextSchema, part(file.contexts, 'context', contextName), 'context');
  const cluster = checked(
    clusterSchema,
    part(file.clusters, 'cluster', context.cluster),
    'cluster',
  );
  const user = checked(userSchema, part(file.users, 'user', context.user), 'user');
  refuseUnsupported(path, cluster, user);
  const material = (data: string | undefined, file: string | undefined): Material | null => {
    if (data !== undefined) {
      return { kind: 'text', text: Buffer.from(data, 'base64').toString('utf8') };
    }
    return file === undefined ? null : { kind: 'file', path: resolve(dirname(path), file) };
  };
  const certificate = material(user['client-certificate-data'], user['client-certificate']);
  const key = material(user['client-key-data'], user['client-key']);
  if ((certificate === null) !== (key === null)) {
    throw invalid('user: client-certificate and client-key belong together');
  }
  return {
    server: new URL(cluster.server),
    serverName: cluster['tls-server-name'] ?? null,
    ca: material(cluster['certificate-authority-data'], cluster['certificate-authority']),
    token:
      user.token === undefined
        ? material(undefined, user.tokenFile)
        : { kind: 'text', text: user.token },
    client: certificate === null || key === null ? null : { certificate, key },
    namespace: context.namespace ?? null,
  };
}

function refuseUnsupported(
  path: string,
  cluster: Readonly<Record<string, unknown>>,
  user: Readonly<Record<string, unknown>>,
): void {
  for (const [part, values] of [
    ['cluster', cluster],
    ['user', user],
  ] as const) {
    for (const field of UNSUPPORTED[part]) {
      if (values[field] === undefined || values[field] === false) continue;
      throw new MeshError(
        'CONFIG_UNSUPPORTED',
        `kubeconfig ${path}: ${part}.${field} is not supported; use a token, a token file or a client certificate`,
      );
    }
  }
}
