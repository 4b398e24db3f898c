import * as z from 'zod';

/**
 * A pod that the node agent has enrolled: its row in the node's `enrolments` table, as JSON, under the pod's uid. `pending`
 * means that rules are in place but no proxy has confirmed; `enabled` means that a proxy serves the pod.
 */
export const enrolmentSchema = z.object({
  podUid: z.string().min(1),
  namespace: z.string().min(1),
  name: z.string().min(1),
  serviceAccount: z.string().min(1),
  netns: z.string().min(1),
  addresses: z.array(z.string()),
  state: z.enum(['pending', 'enabled']),
  since: z.iso.datetime(),
});

/** See {@link enrolmentSchema}. */
export type Enrolment = z.infer<typeof enrolmentSchema>;
