/** Every message of the work plane and every result, in one place. */
import * as z from 'zod';
import { assert } from '../errors/assert.ts';
import { errorTable } from '../errors/codes.ts';
import type { ErrorCode } from '../errors/codes.ts';
import { explainRequestSchema, explainResultSchema } from '../policy/explain.ts';
import type { ExplainRequest, ExplainResult } from '../policy/explain.ts';
import type { JobDefinition } from './contract.ts';

/** Checks a kind of job: its names, its numbers, and that the sample is a valid body. */
export function defineJob<Body>(definition: JobDefinition<Body>): JobDefinition<Body> {
  const { attempts, backoffMs, body, name, queue, sample, version } = definition;
  assert(/^[a-z-]+$/.test(queue), `queue name ${queue}`);
  assert(Number.isInteger(version) && version >= 1, `version of ${name}`);
  assert(attempts >= 1 && backoffMs >= 0, `attempts of ${name}`);
  assert(body.safeParse(sample).success, `the sample of ${name} is not valid`);
  return Object.freeze({ ...definition });
}

/**
 * An error as results carry it. Readers of this and of every body ignore fields that a newer minor version added. They read a
 * code that it added as one that permits another attempt.
 */
export const wireErrorSchema = z.object({
  code: z
    .enum(Object.keys(errorTable) as [ErrorCode, ...ErrorCode[]])
    .catch('IDENTITY_UNAVAILABLE'),
  message: z.string(),
  detail: z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()])),
  cause: z.string().exactOptional(),
});

const signBodySchema = z.object({
  /** The process that asks. It is part of the job's id, so that no two processes share a job or its result. */
  process: z.string().min(1),
  /** SPIFFE URI. */
  identity: z.string().startsWith('spiffe://'),
  /** PEM. */
  csr: z.string().min(1),
});

/** A certificate request: CSR in; the answer goes to the `signed` board. */
export type SignBody = z.infer<typeof signBodySchema>;

/** Urgency of a signing job, lowest first: a connection waits, a certificate is due, a pod was just seen. */
export const SIGN_PRIORITY = { realTime: 1, renewal: 5, warmUp: 10 } as const;

/** Asks the node's certificate fetcher for a certificate (node scope). */
export const certificateSign: JobDefinition<SignBody> = defineJob({
  queue: 'sign',
  name: 'certificate.sign',
  version: 1,
  body: signBodySchema,
  sample: {
    process: 'node-proxy-1',
    identity: 'spiffe://cluster.local/ns/demo/sa/web',
    csr: '-----BEGIN CERTIFICATE REQUEST-----\nMIIB\n-----END CERTIFICATE REQUEST-----\n',
  },
  attempts: 8,
  backoffMs: 1_000,
});

/** Answer to {@link certificateSign}, board {@link SIGNED_BOARD}. */
export const signedSchema = z.discriminatedUnion('ok', [
  /** `chain` is the CA's answer as it is: leaf first, roots last. */
  z.object({ ok: z.literal(true), chain: z.array(z.string()).min(2) }),
  /** `final` when no further attempt follows. */
  z.object({ ok: z.literal(false), error: wireErrorSchema, final: z.boolean() }),
]);

/** See {@link signedSchema}. */
export type Signed = z.infer<typeof signedSchema>;

/** Name of the board of {@link signedSchema}, node scope. */
export const SIGNED_BOARD = 'signed';

/** Asks whether a connection would be allowed, and which path it would take (mesh scope). */
export const policyExplain: JobDefinition<ExplainRequest> = defineJob({
  queue: 'explain',
  name: 'policy.explain',
  version: 1,
  body: explainRequestSchema,
  sample: {
    from: { namespace: 'demo', pod: 'client' },
    to: { namespace: 'demo', name: 'web', port: 80 },
  },
  attempts: 3,
  backoffMs: 500,
});

/** Name of the board of `explainResultSchema`, mesh scope. */
export const EXPLAIN_BOARD = 'explain';

const compileBodySchema = z.object({
  setId: z.string().min(1),
  /** Policy keys `namespace/name` of the set, sorted. */
  keys: z.array(z.string().min(1)),
});

/** The policies of a set to compile; the evaluator reads their contents from its own copy of the table. */
export type CompileBody = z.infer<typeof compileBodySchema>;

/** Asks for the decision program of a policy set (mesh scope). */
export const policyCompile: JobDefinition<CompileBody> = defineJob({
  queue: 'compile',
  name: 'policy.compile',
  version: 1,
  body: compileBodySchema,
  sample: { setId: '0f3a', keys: ['demo/deny-all', 'demo/web'] },
  attempts: 5,
  backoffMs: 500,
});

const acceptBodySchema = z.object({
  /** The newest removal that the operator saw; removals held later are not accepted. */
  upTo: z.iso.datetime(),
});

/** Tells the ingester that leads to apply the removals it holds (mesh scope). */
export const stateAccept: JobDefinition<z.infer<typeof acceptBodySchema>> = defineJob({
  queue: 'accept',
  name: 'state.accept',
  version: 1,
  body: acceptBodySchema,
  sample: { upTo: '2026-11-22T21:45:00.000Z' },
  attempts: 3,
  backoffMs: 500,
});

/** Answer to {@link stateAccept}: how many removals were applied. */
export const acceptedSchema = z.object({ applied: z.int().min(0) });

/** See {@link acceptedSchema}. */
export type Accepted = z.infer<typeof acceptedSchema>;

/** Name of the board of {@link acceptedSchema}, mesh scope. */
export const ACCEPTED_BOARD = 'accepted';

/** All jobs, for tests and for the list of queues. */
export const jobs = { certificateSign, policyExplain, policyCompile, stateAccept } as const;

/** A result board: its name, whose keys, its body and a valid body. */
export interface BoardDefinition<Body> {
  readonly name: string;
  readonly scope: 'mesh' | 'node';
  readonly body: z.ZodType<Body>;
  readonly sample: Body;
}

/** All result boards, with samples. */
export const boards: {
  readonly signed: BoardDefinition<Signed>;
  readonly explain: BoardDefinition<ExplainResult>;
  readonly accepted: BoardDefinition<Accepted>;
} = {
  accepted: { name: ACCEPTED_BOARD, scope: 'mesh', body: acceptedSchema, sample: { applied: 120 } },
  signed: {
    name: SIGNED_BOARD,
    scope: 'node',
    body: signedSchema,
    sample: {
      ok: false,
      error: {
        code: 'IDENTITY_REFUSED',
        message: 'no pod of demo/web runs on node-1',
        detail: { node: 'node-1' },
      },
      final: false,
    },
  },
  explain: {
    name: EXPLAIN_BOARD,
    scope: 'mesh',
    body: explainResultSchema,
    sample: {
      allowed: false,
      policy: 'demo/deny-all',
      rule: 0,
      path: 'hbone',
      reason: 'denied',
      from: 'spiffe://cluster.local/ns/demo/sa/client',
      to: '10.201.0.3:8080',
      nextHop: '10.201.0.3:15008',
      workload: 'Kubernetes//Pod/demo/web-1',
      service: 'demo/web.demo.svc.cluster.local',
      expectedSans: ['spiffe://cluster.local/ns/demo/sa/web'],
      dryRun: [],
      detail: 'rule 0 of demo/deny-all matches',
    },
  },
};

/** A node proxy's report of itself to the other proxies of its node (presence list `proxies`, node scope). */
export const proxyPresenceSchema = z.object({
  pid: z.int().positive(),
  /** Generation. */
  group: z.int().min(0),
  /** `starting`: serves no pod yet. */
  state: z.enum(['starting', 'serving', 'draining']),
  /** Ports of its servers; null while one does not listen. */
  ports: z.record(z.string(), z.int().min(0).max(65_535).nullable()),
  pods: z.int().min(0),
  residentBytes: z.number().min(0),
  /** The first hundred identities of the node that it has no certificate for. */
  missing: z.array(z.string()),
});

/** See {@link proxyPresenceSchema}. */
export type ProxyPresence = z.infer<typeof proxyPresenceSchema>;

/** A valid entry, for the contract tests. */
export const proxyPresenceSample: ProxyPresence = {
  pid: 4_711,
  group: 2,
  state: 'serving',
  ports: { admin: 15_000, stats: 15_020, readiness: 15_021 },
  pods: 12,
  residentBytes: 123_456_789,
  missing: ['spiffe://cluster.local/ns/demo/sa/refused'],
};

/** Queues by scope, as `weft get queues` lists them. {@link stateAccept} has none to look at: its sender waits for the answer. */
export const queuesOfScope = {
  mesh: [policyCompile.queue, policyExplain.queue],
  node: [certificateSign.queue],
} as const;
