import * as z from 'zod';

/**
 * A pod of the local runtime: one JSON file (`<uid>.json`, replaced atomically) in its node's pod directory. The local runtime
 * writes it and the node agent reads it, in place of a container runtime's state.
 */
export const podRecordSchema = z.object({
  uid: z.string().min(1),
  namespace: z.string().min(1),
  name: z.string().min(1),
  serviceAccount: z.string().min(1),
  node: z.string().min(1),
  /** Path of a file that holds the network namespace, e.g. /run/netns/x; null when the agent has to find it. */
  netns: z.string().min(1).nullable().default(null),
  addresses: z.array(z.string()),
  labels: z.record(z.string(), z.string()),
  annotations: z.record(z.string(), z.string()),
  namespaceLabels: z.record(z.string(), z.string()),
  hostNetwork: z.boolean(),
});

/** See {@link podRecordSchema}. */
export type PodRecord = z.infer<typeof podRecordSchema>;
