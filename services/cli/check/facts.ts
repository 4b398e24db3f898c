/** Reads what `weft check` judges. A part that cannot be read becomes the reason, and the others are read all the same. */
import * as z from 'zod';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { ifPresent, isCode } from '../../../lib/kubernetes/status.ts';
import type { ClusterAccess } from '../cluster/access.ts';
import { readList } from '../../../lib/kubernetes/read-list.ts';
import { readWorkloads } from '../cluster/workloads.ts';
import type { Workload } from '../cluster/workloads.ts';
import type { Read } from './line.ts';
import { DEFINITIONS, NEEDED_RIGHTS, READING_RIGHTS } from './rights.ts';
import type { Right } from './rights.ts';

/** A node. */
export interface NodeFact {
  readonly name: string;
  readonly os: string;
  readonly kernel: string;
}

/** A resource definition: its served versions, null where the cluster has none. */
export interface DefinitionFact {
  readonly name: string;
  readonly served: readonly string[] | null;
}

/** The parts of a cluster. */
export interface ClusterFacts {
  readonly namespace: string;
  /** `v1.34.4` */
  readonly version: Read<string>;
  readonly nodes: Read<readonly NodeFact[]>;
  /** Labels of the release's namespace; null where there is none. */
  readonly namespaceLabels: Read<Readonly<Record<string, string>> | null>;
  readonly definitions: Read<readonly DefinitionFact[]>;
  /** Whether the API server serves the Gateway API. */
  readonly gatewayApi: Read<boolean>;
  /** Workloads of all namespaces. */
  readonly workloads: Read<readonly Workload[]>;
  /** Workloads of the release's namespace. */
  readonly own: Read<readonly Workload[]>;
  /** Cilium's settings; null without Cilium. */
  readonly cilium: Read<Readonly<Record<string, string>> | null>;
  /** Rights to install that the user lacks. */
  readonly missingToInstall: Read<readonly Right[]>;
  /** Rights to read a mesh that the user lacks. */
  readonly missingToRead: Read<readonly Right[]>;
  /** Whether the account of Istio's ztunnel is in the namespace. */
  readonly ztunnelAccount: Read<boolean>;
  /** Whether the webhook has a certificate; null where there is no webhook. */
  readonly webhookReady: Read<boolean | null>;
}

const nodeSchema = z.looseObject({
  metadata: z.looseObject({ name: z.string() }),
  status: z.looseObject({
    nodeInfo: z.looseObject({ operatingSystem: z.string(), kernelVersion: z.string() }),
  }),
});
const labelled = z.looseObject({
  metadata: z.looseObject({ labels: z.record(z.string(), z.string()).default({}) }),
});
const definitionSchema = z.looseObject({
  spec: z.looseObject({
    versions: z.array(z.looseObject({ name: z.string(), served: z.boolean() })),
  }),
});
const versionSchema = z.looseObject({ gitVersion: z.string() });
const configMap = z.looseObject({ data: z.record(z.string(), z.string()).default({}) });
const webhookSchema = z.looseObject({
  webhooks: z.array(
    z.looseObject({ clientConfig: z.looseObject({ caBundle: z.string().default('') }) }),
  ),
});
const reviewSchema = z.looseObject({ status: z.looseObject({ allowed: z.boolean() }) });

/** Reads all parts. Throws KUBERNETES_UNAVAILABLE when the API server cannot be reached at all. */
export async function readFacts({ client, namespace }: ClusterAccess): Promise<ClusterFacts> {
  const version = await readVersion(client);
  const place = encodeURIComponent(namespace);
  const exists = (path: string): Promise<boolean> =>
    find(client, path, () => true).then((found) => found === true);
  const parts = await readAll({
    own: readWorkloads(client, namespace),
    workloads: readWorkloads(client, null),
    nodes: readList(client, '/api/v1/nodes', nodeFact),
    namespaceLabels: find(
      client,
      `/api/v1/namespaces/${place}`,
      (found) => labelled.parse(found).metadata.labels,
    ),
    definitions: Promise.all(DEFINITIONS.map((name) => definition(client, name))),
    gatewayApi: exists('/apis/gateway.networking.k8s.io'),
    cilium: find(
      client,
      '/api/v1/namespaces/kube-system/configmaps/cilium-config',
      (found) => configMap.parse(found).data,
    ),
    missingToInstall: missing(client, NEEDED_RIGHTS, namespace),
    missingToRead: missing(client, READING_RIGHTS, namespace),
    ztunnelAccount: exists(`/api/v1/namespaces/${place}/serviceaccounts/ztunnel`),
    webhookReady: find(
      client,
      `/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/weft-validator-${place}`,
      (found) =>
        webhookSchema
          .parse(found)
          .webhooks.every(({ clientConfig }) => clientConfig.caBundle !== ''),
    ),
  });
  return { namespace, version, ...parts };
}

async function readVersion(client: KubernetesClient): Promise<Read<string>> {
  try {
    const answer = versionSchema.parse(await client.get('/version'));
    return { value: answer.gitVersion };
  } catch (error) {
    if (isCode(error, 'KUBERNETES_UNAVAILABLE')) throw error;
    return unread(error);
  }
}

function nodeFact(object: unknown): NodeFact {
  const { metadata, status } = nodeSchema.parse(object);
  const { operatingSystem: os, kernelVersion: kernel } = status.nodeInfo;
  return { name: metadata.name, os, kernel };
}

async function definition(client: KubernetesClient, name: string): Promise<DefinitionFact> {
  const path = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${name}`;
  const served = await find(client, path, (found) =>
    definitionSchema.parse(found).spec.versions.filter((one) => one.served),
  );
  return { name, served: served?.map((one) => one.name) ?? null };
}

async function missing(
  client: KubernetesClient,
  rights: readonly Right[],
  namespace: string,
): Promise<readonly Right[]> {
  const answers = await Promise.all(
    rights.map(async ({ verb, group, resource, everywhere }) => {
      const [name = '', subresource = ''] = resource.split('/');
      const answer = await client.create('/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', {
        apiVersion: 'authorization.k8s.io/v1',
        kind: 'SelfSubjectAccessReview',
        spec: {
          resourceAttributes: {
            verb,
            group,
            resource: name,
            subresource,
            ...(everywhere ? {} : { namespace }),
          },
        },
      });
      return reviewSchema.parse(answer).status.allowed;
    }),
  );
  return rights.filter((_right, index) => answers[index] === false);
}

async function find<T>(
  client: KubernetesClient,
  path: string,
  pick: (found: unknown) => T,
): Promise<T | null> {
  const found = await ifPresent(client.get(path));
  return found === null ? null : pick(found);
}

/** Each part, or the reason why it could not be read. */
async function readAll<Parts extends Readonly<Record<string, Promise<unknown>>>>(
  parts: Parts,
): Promise<{ readonly [Name in keyof Parts]: Read<Awaited<Parts[Name]>> }> {
  const entries = Object.entries(parts).map(
    async ([name, work]) => [name, await work.then((value) => ({ value }), unread)] as const,
  );
  return Object.fromEntries(await Promise.all(entries)) as {
    readonly [Name in keyof Parts]: Read<Awaited<Parts[Name]>>;
  };
}

function unread(error: unknown): { readonly unread: string } {
  if (error instanceof MeshError) return { unread: error.message };
  if (error instanceof z.ZodError) return { unread: `unexpected answer: ${error.message}` };
  throw error;
}
