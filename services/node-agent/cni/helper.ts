/**
 * Judges a pod by the Kubernetes API while no node agent answers the CNI plugin. It runs on the host, from the folder that the
 * installer owns, and imports nothing but what is copied there (helper-files.ts). Prints `mesh`, `outside` or `unknown`, and why.
 */
import { readFileSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { eligibility } from '../eligibility.ts';
import type { EnablementSelector } from '../eligibility.ts';

type Json = Readonly<Record<string, unknown>>;

/** The API server may be away; two reads fit into the plugin's patience (plugin/helper.h). */
const READ_MS = 8_000;
const MAX_ANSWER_BYTES = 4 * 1024 * 1024;
/** The installer writes it in JSON (kubeconfig.ts). */
const KUBECONFIG = 'weft-cni-kubeconfig';
/** A static pod has another uid in the API than on its node, which is in this annotation. */
const STATIC_POD_UID = 'kubernetes.io/config.hash';

interface Kubeconfig {
  readonly clusters: readonly [
    {
      readonly cluster: {
        readonly server: string;
        readonly 'certificate-authority-data'?: string;
        readonly 'tls-server-name'?: string;
      };
    },
  ];
  readonly users: readonly [
    {
      readonly user: { readonly token: string };
    },
  ];
}

interface Question {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly settings: {
    readonly cni_agent_run_dir: string;
    readonly exclude_namespaces: readonly string[];
    readonly enablement_selectors: readonly EnablementSelector[];
  };
}

async function judge(question: Question): Promise<string> {
  const { namespace, name, uid, settings } = question;
  const path = join(settings.cni_agent_run_dir, KUBECONFIG);
  const config = JSON.parse(readFileSync(path, 'utf8')) as Kubeconfig;
  const [pod, space] = await Promise.all([
    get(config, `/api/v1/namespaces/${namespace}/pods/${name}`),
    get(config, `/api/v1/namespaces/${namespace}`),
  ]);
  const annotations = texts(pod, 'metadata', 'annotations');
  const known = [part(pod, 'metadata')['uid'], annotations[STATIC_POD_UID]];
  if (uid !== '' && !known.includes(uid)) {
    throw new Error(`pod ${namespace}/${name} in the API is another one than ${uid}`);
  }
  const decision = eligibility(
    {
      namespace,
      hostNetwork: part(pod, 'spec')['hostNetwork'] === true,
      annotations,
      labels: texts(pod, 'metadata', 'labels'),
      namespaceLabels: texts(space, 'metadata', 'labels'),
    },
    {
      excludedNamespaces: settings.exclude_namespaces,
      selectors: settings.enablement_selectors,
    },
  );
  return `${decision.enrol ? 'mesh' : 'outside'} ${decision.reason}`;
}

function part(object: unknown, ...path: readonly string[]): Json {
  const value = path.reduce<unknown>((at, key) => (at as Json | undefined)?.[key], object);
  return (value ?? {}) as Json;
}

function texts(object: unknown, ...path: readonly string[]): Readonly<Record<string, string>> {
  return part(object, ...path) as Readonly<Record<string, string>>;
}

function decoded(data: string | undefined): string | undefined {
  return data === undefined ? undefined : Buffer.from(data, 'base64').toString('utf8');
}

async function get({ clusters, users }: Kubeconfig, path: string): Promise<unknown> {
  const { cluster } = clusters[0];
  const { user } = users[0];
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  const outgoing = request(
    new URL(path, cluster.server),
    {
      ca: decoded(cluster['certificate-authority-data']),
      ...(cluster['tls-server-name'] === undefined
        ? {}
        : { servername: cluster['tls-server-name'] }),
      headers: {
        accept: 'application/json',
        'user-agent': 'weft-cni',
        authorization: `Bearer ${user.token}`,
      },
      minVersion: 'TLSv1.2',
      signal: AbortSignal.timeout(READ_MS),
    },
    (response) => {
      let text = '';
      response.setEncoding('utf8').on('error', reject);
      response.on('data', (chunk: string) => {
        text += chunk;
        if (text.length > MAX_ANSWER_BYTES) response.destroy(new Error('the answer is too long'));
      });
      response.on('end', () => {
        if (response.statusCode === 200) resolve(text);
        else reject(new Error(`status ${response.statusCode}`));
      });
    },
  );
  outgoing.on('error', reject).end();
  try {
    return JSON.parse((await promise) as string);
  } catch (error) {
    throw new Error(`GET ${path}: ${String(error)}`, { cause: error });
  }
}

async function answer(): Promise<string> {
  try {
    return await judge(JSON.parse(readFileSync(0, 'utf8')) as Question);
  } catch (error) {
    // The plugin applies the operator's rule for what nobody can tell.
    return `unknown ${String(error).replaceAll(/\s+/g, ' ')}`;
  }
}

process.stdout.write(`${await answer()}\n`);
