/** The fields of Kubernetes objects that the local pod runtime uses. The control plane has checked the objects. */
import * as z from 'zod';

const metadata = z.looseObject({
  name: z.string().min(1),
  namespace: z.string().default('default'),
  uid: z.string().default(''),
  labels: z.record(z.string(), z.string()).default({}),
  annotations: z.record(z.string(), z.string()).default({}),
});

const container = z.looseObject({
  name: z.string().default('main'),
  image: z.string().default(''),
  command: z.array(z.string()).default([]),
  args: z.array(z.string()).default([]),
  workingDir: z.string().default('/'),
  env: z.array(z.looseObject({ name: z.string(), value: z.string().default('') })).default([]),
  ports: z
    .array(
      z.looseObject({ name: z.string().default(''), containerPort: z.int().min(1).max(65_535) }),
    )
    .default([]),
});

/** A pod. */
export const podObject = z.looseObject({
  kind: z.literal('Pod'),
  metadata,
  spec: z.looseObject({
    nodeName: z.string().default(''),
    serviceAccountName: z.string().default('default'),
    hostNetwork: z.boolean().default(false),
    restartPolicy: z.enum(['Always', 'OnFailure', 'Never']).default('Always'),
    containers: z.array(container).default([]),
  }),
});

/** A namespace: its labels decide enrolment. */
export const namespaceObject = z.looseObject({ kind: z.literal('Namespace'), metadata });

/** A service: its addresses go into the pods' hosts files. */
export const serviceObject = z.looseObject({
  kind: z.literal('Service'),
  metadata,
  spec: z.looseObject({
    clusterIP: z.string().optional(),
    clusterIPs: z.array(z.string()).default([]),
  }),
});

/** A service entry: its fixed addresses go into the pods' hosts files. */
export const serviceEntryObject = z.looseObject({
  kind: z.literal('ServiceEntry'),
  metadata,
  spec: z.looseObject({
    hosts: z.array(z.string()).default([]),
    addresses: z.array(z.string()).default([]),
  }),
});

/** See {@link podObject}. */
export type PodObject = z.infer<typeof podObject>;
/** See {@link namespaceObject}. */
export type NamespaceObject = z.infer<typeof namespaceObject>;
/** See {@link serviceObject}. */
export type ServiceObject = z.infer<typeof serviceObject>;
/** See {@link serviceEntryObject}. */
export type ServiceEntryObject = z.infer<typeof serviceEntryObject>;
/** One container of a pod. */
export type Container = PodObject['spec']['containers'][number];

/** `namespace/name`. */
export function objectKey(object: {
  readonly metadata: { readonly namespace: string; readonly name: string };
}): string {
  return `${object.metadata.namespace}/${object.metadata.name}`;
}
