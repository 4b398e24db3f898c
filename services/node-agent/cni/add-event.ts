/** Reads the event that a CNI plugin sends for a new pod: istio-cni's form, with fields of Weft's own (docs/spec/cni.md §8.2). */
import { isIP } from 'node:net';
import * as z from 'zod';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { schemaProblems } from '../../../lib/errors/schema-problems.ts';
import { MAX_EVENT_ADDRESSES } from './limits.ts';

/** A pod whose network stands, and which waits for its enrolment. */
export interface AddEvent {
  /** Path of the network namespace on the host. */
  readonly netns: string;
  readonly namespace: string;
  readonly name: string;
  /** Null where the plugin does not tell it. */
  readonly uid: string | null;
  readonly addresses: readonly string[];
  /**
   * True where the plugin asks about every pod; false for istio-cni's, which asks only about pods that it takes for pods of
   * the mesh.
   */
  readonly agentDecides: boolean;
}

const ip = z.string().refine((text) => isIP(text) !== 0, 'must be an IP address');
const schema = z.looseObject({
  // A path ends at a NUL byte; what follows would only be in the log.
  Netns: z
    .string()
    .max(4_096)
    .regex(/^\/[^\0]*$/, 'must be an absolute path'),
  PodName: z.string().min(1).max(253),
  PodNamespace: z.string().min(1).max(253),
  IPs: z
    .array(z.looseObject({ Address: z.looseObject({ IP: ip }) }))
    .max(MAX_EVENT_ADDRESSES)
    .nullish(),
  PodUID: z.string().max(253).optional(),
  AgentDecides: z.boolean().optional(),
});

/** Reads the body of a request. Throws CONFIG_INVALID that names every wrong field. */
export function readAddEvent(body: unknown): AddEvent {
  const parsed = schema.safeParse(body);
  if (!parsed.success) {
    throw new MeshError('CONFIG_INVALID', schemaProblems(parsed.error, 'event'));
  }
  const { Netns, PodName, PodNamespace, IPs, PodUID, AgentDecides } = parsed.data;
  return {
    netns: Netns,
    namespace: PodNamespace,
    name: PodName,
    uid: PodUID === undefined || PodUID === '' ? null : PodUID,
    addresses: (IPs ?? []).map(({ Address }) => Address.IP),
    agentDecides: AgentDecides === true,
  };
}
