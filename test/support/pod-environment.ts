/** Checks the variables of Kubernetes manifests by the schemas of the roles that read them. */
import * as z from 'zod';
import { hostConfig } from '../../lib/actor/host-config.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { expandActors, loadActor } from '../../services/local-mesh/actors.ts';

const variable = z.object({
  name: z.string(),
  value: z.string().optional(),
  valueFrom: z.strictObject({ fieldRef: z.object({ fieldPath: z.string() }) }).optional(),
});
const container = z.object({
  args: z.array(z.string()).default([]),
  env: z.array(variable).default([]),
});
const workload = z.object({
  metadata: z.object({ name: z.string() }),
  spec: z.object({
    template: z.object({ spec: z.object({ containers: z.array(container) }) }),
  }),
});
const KINDS = new Set(['DaemonSet', 'Deployment', 'StatefulSet']);

/** Stands for what kubelet fills in. */
const FIELDS: Readonly<Record<string, string>> = {
  'spec.nodeName': 'node-1',
  'metadata.name': 'pod-1',
  'metadata.namespace': 'istio-system',
  'status.podIP': '10.0.0.1',
};
/** Kubelet sets them in every container. */
const KUBELET = { KUBERNETES_SERVICE_HOST: '10.96.0.1', KUBERNETES_SERVICE_PORT: '443' };

/** The roles that manifests run, and the faults of their variables: doubled, refused, without a value, or read by nobody. */
export async function podEnvironments(
  objects: readonly { readonly kind: string }[],
): Promise<{ readonly roles: readonly string[]; readonly faults: readonly string[] }> {
  const roles: string[] = [];
  const faults: string[] = [];
  for (const object of objects.filter(({ kind }) => KINDS.has(kind))) {
    const { metadata, spec } = workload.parse(object);
    for (const { args, env } of spec.template.spec.containers) {
      const [command, role = ''] = args;
      if (command !== 'run') continue;
      roles.push(role);
      faults.push(...(await faultsOf(role, env)).map((fault) => `${metadata.name}: ${fault}`));
    }
  }
  return { roles: roles.toSorted(), faults };
}

async function faultsOf(
  role: string,
  variables: readonly z.output<typeof variable>[],
): Promise<string[]> {
  const faults: string[] = [];
  const environment: Record<string, string> = {};
  for (const { name, value, valueFrom } of variables) {
    const text = value ?? FIELDS[valueFrom?.fieldRef.fieldPath ?? ''];
    if (name in environment) faults.push(`${name} is there twice`);
    if (text === undefined) faults.push(`${name} has no value`);
    else
      environment[name] = text.replaceAll(
        /\$\((\w+)\)/g,
        (_, other: string) => environment[other] ?? '',
      );
  }
  const actors = await Promise.all(expandActors([role]).map(loadActor));
  const configs = [hostConfig, ...actors.map(({ config }) => config)];
  for (const config of configs) {
    try {
      config.parse({ ...environment, ...KUBELET });
    } catch (error) {
      faults.push(errorText(error));
    }
  }
  const known = new Set(configs.flatMap((config) => Object.keys(config.variables)));
  const unread = Object.keys(environment).filter((name) => !known.has(name));
  return [...faults, ...unread.map((name) => `${role} does not read ${name}`)];
}
