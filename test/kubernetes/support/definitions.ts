import { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { systemClock } from '../../../lib/clock/clock.ts';
import { resourcePath } from '../../../lib/kubernetes/resource.ts';
import type { ResourceType } from '../../../lib/kubernetes/resource.ts';
import { until } from '../../support/until.ts';
import type { ApiServer } from './api-server.ts';

/** The resource of definitions. */
export const DEFINITIONS: ResourceType = {
  group: 'apiextensions.k8s.io',
  versions: ['v1'],
  plural: 'customresourcedefinitions',
  namespaced: false,
};

interface Definition {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly group: string;
    readonly names: { readonly plural: string };
    readonly versions: readonly { readonly name: string; readonly served: boolean }[];
  };
  readonly status?: { readonly conditions?: readonly { type: string; status: string }[] };
}

interface Discovered {
  readonly resources: readonly { readonly name: string }[];
}

/** Returns a client with the rights of an administrator. The caller closes it. */
export function adminClient(server: ApiServer): KubernetesClient {
  return new KubernetesClient(
    {
      server: new URL(server.url),
      serverName: null,
      ca: { kind: 'text', text: server.caPem },
      token: { kind: 'text', text: server.adminToken },
      client: null,
      namespace: null,
    },
    { clock: systemClock, userAgent: 'weft-test' },
  );
}

/** Creates CustomResourceDefinitions and waits until their resources are served. Other documents are left out. */
export async function installDefinitions(
  server: ApiServer,
  documents: readonly unknown[],
): Promise<void> {
  const client = adminClient(server);
  const wanted = (documents as readonly (Definition | null)[]).filter(
    (document) => document?.kind === 'CustomResourceDefinition',
  ) as readonly Definition[];
  try {
    await Promise.all(
      wanted.map(async (definition) => {
        await client.create(resourcePath(DEFINITIONS), definition);
        await until(
          async () => {
            const path = resourcePath(DEFINITIONS, { name: definition.metadata.name });
            const { status } = (await client.get(path)) as Definition;
            const isEstablished = status?.conditions?.some(
              ({ type, status: value }) => type === 'Established' && value === 'True',
            );
            if (isEstablished !== true) return false;
            // Discovery follows a moment later.
            const { group, names, versions } = definition.spec;
            const version = versions.find(({ served }) => served)?.name ?? '';
            const { resources } = (await client.get(`/apis/${group}/${version}`)) as Discovered;
            return resources.some(({ name }) => name === names.plural);
          },
          { what: `${definition.metadata.name} is served` },
        );
      }),
    );
  } finally {
    client.close();
  }
}
