/** Proves a node for a person: reads everything back and names what is wrong. */
import type { Cni } from '../cni/cni.ts';
import type { KubernetesParts } from '../kubernetes/kubernetes-parts.ts';
import type { NodeEnrolments } from '../node-enrolments.ts';
import { nodeFindings, podFindings } from './findings.ts';
import type { Finding, NodeFacts } from './findings.ts';

/** The parts of an agent that a proof asks. */
export interface ProofParts {
  readonly node: string;
  readonly pods: Pick<NodeEnrolments, 'prove' | 'wanted'>;
  readonly proxies: number;
  readonly redisConnected: boolean;
  readonly noZones: string | null;
  readonly kubernetes: Pick<KubernetesParts, 'prove' | 'pods'> | null;
  readonly cni: Pick<Cni, 'facts' | 'installedAtMs'> | null;
}

/** The answer of `GET /node-agent/proof`. */
export interface Proof {
  readonly node: string;
  /** How many pods are to be in the mesh. */
  readonly pods: number;
  /** Empty when everything is right. */
  readonly findings: readonly Finding[];
}

/** Reads and judges. Changes nothing. */
export async function proveNode(parts: ProofParts): Promise<Proof> {
  const { node, pods, proxies, redisConnected, noZones, kubernetes } = parts;
  const records = pods.wanted();
  const [facts, cluster] = await Promise.all([pods.prove(), kubernetes?.prove(records) ?? null]);
  const found = nodeFindings({ proxies, redisConnected, noZones, cni: cniFacts(parts), cluster });
  return { node, pods: facts.length, findings: [...found, ...facts.flatMap(podFindings)] };
}

function cniFacts({ cni, kubernetes, pods }: ProofParts): NodeFacts['cni'] {
  if (cni === null) return null;
  const since = cni.installedAtMs;
  const uids = since === null ? null : kubernetes?.pods.uncalled(since);
  const uncalled = pods
    .wanted()
    .filter(({ uid }) => uids?.has(uid) === true)
    .map(({ namespace, name }) => `${namespace}/${name}`);
  return { ...cni.facts, uncalled };
}
