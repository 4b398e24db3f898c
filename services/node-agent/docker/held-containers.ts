/** Answers weft-runtime (cni/plugin/runtime.cc): a container starts once it is enrolled, or known to be outside the mesh. */
import { join } from 'node:path';
import * as z from 'zod';
import { MODE_LABEL, claimOf, labelFacts } from '../../../lib/docker/pod-container.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { schemaProblems } from '../../../lib/errors/schema-problems.ts';
import { NetnsHandle } from '../../../lib/linux/netns-handle.ts';
import { addressesOf } from '../../../lib/linux/netns.ts';
import { canonicalIp } from '../../../lib/net/address.ts';
import { eligibility } from '../eligibility.ts';
import type { EligibilityRules } from '../eligibility.ts';
import type { NodeEnrolments } from '../node-enrolments.ts';
import { enrolled } from '../start-server.ts';
import type { HeldStart, StartAnswer } from '../start-server.ts';
import { containerRecord } from './container-record.ts';
import type { DockerPods } from './docker-pods.ts';

/** The socket's name beside that of the proxies. */
export const RUNTIME_SOCKET = 'weft-runtime.sock';
/** The path of its requests. */
export const RUNTIME_ROUTE = '/start';

/** A container with a network of its own that the engine is starting. */
const schema = z.object({
  ContainerID: z.string().regex(/^[0-9a-f]{64}$/, "must be a container's id"),
  Pid: z.int().positive(),
  Labels: z.record(z.string(), z.string()),
});

/** The dependencies of {@link readHeldContainer}. */
export interface HeldContainerDeps {
  readonly node: string;
  /** A mount of the node's `/proc`. */
  readonly procDir: string;
  readonly rules: EligibilityRules;
  readonly source: Pick<DockerPods, 'hold'>;
  readonly pods: Pick<NodeEnrolments, 'outcome'>;
}

/** Reads the body of a request. Throws CONFIG_INVALID that names every wrong field. */
export function readHeldContainer(body: unknown, deps: HeldContainerDeps): HeldStart {
  const parsed = schema.safeParse(body);
  if (!parsed.success) {
    throw new MeshError('CONFIG_INVALID', schemaProblems(parsed.error, 'event'));
  }
  const { ContainerID: id, Pid: pid, Labels: labels } = parsed.data;
  return { pod: `container ${id.slice(0, 12)}`, judge: () => judge({ id, pid, labels }, deps) };
}

async function judge(
  container: { id: string; pid: number; labels: Readonly<Record<string, string>> },
  { node, procDir, rules, source, pods }: HeldContainerDeps,
): Promise<StartAnswer> {
  const { id, pid, labels } = container;
  // The runtime does not ask about a network that belongs to the host or to another container.
  const claim = claimOf({ Labels: labels, HostConfig: { NetworkMode: 'own' } }, node);
  const mode = labels[MODE_LABEL];
  if (claim === null) return { status: 200, text: `container ${id} is no pod` };
  if (typeof claim === 'string') return { status: mode === 'none' ? 200 : 409, text: claim };
  const { key } = claim;
  const pod = `pod ${key}`;
  if (claim.node !== node) {
    return { status: mode === 'ambient' ? 409 : 200, text: `${pod} is on ${claim.node}` };
  }
  let addresses: string[];
  try {
    addresses = ownAddresses(join(procDir, String(pid), 'ns/net'));
  } catch (error) {
    return { status: 409, text: `${pod} has no network namespace: ${errorText(error)}` };
  }
  const facts = { key, node, id, pid, addresses, ...labelFacts(labels) };
  const record = containerRecord(facts, procDir);
  const { enrol, reason } = eligibility(record, rules);
  if (!enrol) return { status: 200, text: `${pod} is outside the mesh: ${reason}` };
  if (addresses.length === 0) return { status: 409, text: `${pod} has no address` };
  let fault: string | null;
  try {
    fault = source.hold(record);
  } catch (error) {
    if (!(error instanceof MeshError)) throw error;
    return { status: 503, text: `${pod} cannot be judged: ${error.message}` };
  }
  return fault === null ? enrolled(pods, id, { pod, reason }) : { status: 409, text: fault };
}

/** The addresses by which others reach the namespace. */
function ownAddresses(path: string): string[] {
  const handle = NetnsHandle.open(path);
  try {
    return addressesOf(handle.fd)
      .filter((address) => !/^(?:127\.|::1$|fe80:)/.test(address))
      .map(canonicalIp);
  } finally {
    handle.release();
  }
}
