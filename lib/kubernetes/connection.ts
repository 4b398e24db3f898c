/** Address and credentials of the API server: a kubeconfig file, or the service account of the pod. */
import { readFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import * as z from 'zod';
import { yaml } from '../config/yaml.ts';
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
  /** How {@link token} and {@link client} are replaced; absent where files hold them, or nothing does. */
  readonly renewal?: CredentialsRenewal;
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
  exec: z.unknown().optional(),
});

/** Ways of kubectl that weaken the connection or need a library of their own. */
const UNSUPPORTED = {
  cluster: ['insecure-skip-tls-verify', 'proxy-url'],
  user: ['auth-provider', 'username', 'as'],
} as const;

/** Credentials, and how they are replaced. */
export type GivenCredentials = Pick<KubernetesConnection, 'token' | 'client' | 'renewal'>;

/** New credentials in the place of others. */
export interface CredentialsRenewal {
  /** When the others expire, in milliseconds since 1970; null when unknown: they are used until the API server refuses them. */
  readonly expiresAtMs: number | null;
  /** Throws KUBERNETES_REFUSED when there are none. */
  renew(): Promise<GivenCredentials>;
}

/** How {@link readKubeconfig} chooses. */
export interface KubeconfigChoice {
  /** The name of a context; the current one when left out. */
  readonly context?: string | undefined;
  /** Runs the program of `user.exec`, which is unsupported without this. */
  readonly exec?: (program: unknown) => Promise<GivenCredentials>;
}

/**
 * Reads a context of kubeconfig files; of entries with one name the first counts. Throws CONFIG_INVALID that names the field, and
 * CONFIG_UNSUPPORTED for a proxy, a server that is not verified, and other ways that are not known here.
 */
export async function readKubeconfig(
  paths: string | readonly string[],
  choice: KubeconfigChoice = {},
): Promise<KubernetesConnection> {
  const list = typeof paths === 'string' ? [paths] : paths;
  const name = list.join(':');
  const invalid = (why: string): MeshError =>
    new MeshError('CONFIG_INVALID', `kubeconfig ${name}: ${why}`);
  const files = await Promise.all(list.map(readConfigFile));
  const part = (
    key: 'cluster' | 'context' | 'user',
    wanted: string,
  ): { readonly value: unknown; readonly dir: string } => {
    for (const { file, dir } of files) {
      const entries: readonly Record<string, unknown>[] = file[`${key}s`];
      const found = entries.find((item) => item['name'] === wanted);
      if (found !== undefined) return { value: found[key], dir };
    }
    throw invalid(`there is no ${key} named ${JSON.stringify(wanted)}`);
  };
  const current = files.map(({ file }) => file['current-context']).find((text) => text !== '');
  const context = checked(
    name,
    contextSchema,
    part('context', choice.context ?? current ?? '').value,
    'context',
  );
  const clusterPart = part('cluster', context.cluster);
  const cluster = checked(name, clusterSchema, clusterPart.value, 'cluster');
  const userPart = part('user', context.user);
  const user = checked(name, userSchema, userPart.value, 'user');
  refuseUnsupported(name, { cluster, user });
  if (user.exec !== undefined && choice.exec === undefined) throw unsupported(name, 'user.exec');
  const given = user.exec === undefined ? null : await choice.exec?.(user.exec);
  return {
    server: new URL(cluster.server),
    serverName: cluster['tls-server-name'] ?? null,
    ca: material(
      clusterPart.dir,
      cluster['certificate-authority-data'],
      cluster['certificate-authority'],
    ),
    ...(given ?? userCredentials(name, userPart.dir, user)),
    namespace: context.namespace ?? null,
  };
}

async function readConfigFile(
  path: string,
): Promise<{ readonly file: z.infer<typeof kubeconfigSchema>; readonly dir: string }> {
  let content: unknown;
  try {
    content = yaml().parse((await readBounded(path, MAX_KUBECONFIG_BYTES)).toString('utf8'));
  } catch (error) {
    throw new MeshError('CONFIG_INVALID', `kubeconfig ${path}: ${errorText(error)}`, {
      cause: error,
    });
  }
  return { file: checked(path, kubeconfigSchema, content, 'file'), dir: dirname(path) };
}

function checked<T>(path: string, schema: z.ZodType<T>, value: unknown, place: string): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  const field = [place, ...(issue?.path ?? [])].join('.');
  const why = `kubeconfig ${path}: ${field}: ${issue?.message ?? 'unusable'}`;
  throw new MeshError('CONFIG_INVALID', why);
}

function material(
  dir: string,
  data: string | undefined,
  file: string | undefined,
): Material | null {
  if (data !== undefined) {
    return { kind: 'text', text: Buffer.from(data, 'base64').toString('utf8') };
  }
  return file === undefined ? null : { kind: 'file', path: resolve(dir, file) };
}

function userCredentials(
  path: string,
  dir: string,
  user: z.infer<typeof userSchema>,
): GivenCredentials {
  const certificate = material(dir, user['client-certificate-data'], user['client-certificate']);
  const key = material(dir, user['client-key-data'], user['client-key']);
  if ((certificate === null) !== (key === null)) {
    throw new MeshError(
      'CONFIG_INVALID',
      `kubeconfig ${path}: user: client-certificate and client-key belong together`,
    );
  }
  return {
    token:
      user.token === undefined
        ? material(dir, undefined, user.tokenFile)
        : { kind: 'text', text: user.token },
    client: certificate === null || key === null ? null : { certificate, key },
  };
}

function refuseUnsupported(
  path: string,
  parts: Readonly<Record<keyof typeof UNSUPPORTED, Readonly<Record<string, unknown>>>>,
): void {
  for (const part of ['cluster', 'user'] as const) {
    for (const field of UNSUPPORTED[part]) {
      const value = parts[part][field];
      if (value !== undefined && value !== false) throw unsupported(path, `${part}.${field}`);
    }
  }
}

function unsupported(path: string, field: string): MeshError {
  return new MeshError(
    'CONFIG_UNSUPPORTED',
    `kubeconfig ${path}: ${field} is not supported; use a token, a token file or a client certificate`,
  );
}
