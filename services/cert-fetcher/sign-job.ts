/** One signing job: check it, ask the CA, publish the answer. */
import type { JobAttempt } from '../../lib/bus/contract.ts';
import type { ResultBoard } from '../../lib/bus/result-board.ts';
import type { SignBody, Signed } from '../../lib/bus/catalog.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { MeshError, asMeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { CaClient } from '../../lib/identity/ca-client.ts';
import { parseRequest } from '../../lib/identity/csr.ts';
import { parseSpiffe } from '../../lib/net/spiffe.ts';
import type { Roots } from '../../lib/identity/trust-bundle.ts';
import { parseCaAnswer, unknownRoots } from '../../lib/identity/workload-certificate.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { IDENTITY_PATIENCE_MS, RESULT_LIFETIME_MS } from './limits.ts';
import type { FetcherMetrics } from './metrics.ts';
import type { NodeIdentities } from './node-identities.ts';

/** Dependencies of a job. */
export interface SignJobDeps {
  readonly node: string;
  readonly lifetimeMs: number;
  readonly clock: Clock;
  readonly log: Pick<Logger, 'info' | 'warn'>;
  readonly metrics: FetcherMetrics;
  readonly identities: Pick<NodeIdentities, 'synced' | 'appears'>;
  readonly ca: Pick<CaClient, 'createCertificate'>;
  readonly board: ResultBoard<Signed>;
  readonly roots: () => Roots | null;
}

/**
 * Works on one attempt. Publishes success, and every failure with its attempt number, as a connection may wait
 * for the reason. Throws the failure, so that the queue tries again, or counts a dead letter when it is final.
 */
export async function workOnSignJob(
  body: SignBody,
  attempt: JobAttempt,
  deps: SignJobDeps,
): Promise<void> {
  const startedAt = deps.clock.monotonic();
  try {
    await checkRequest(body, deps);
    const chain = await deps.ca.createCertificate(
      {
        csr: body.csr,
        validitySeconds: Math.round(deps.lifetimeMs / 1000),
        impersonated: body.identity,
      },
      attempt.signal,
    );
    reportRoots(chain, body.identity, deps);
    await deps.board.put(attempt.id, { ok: true, chain: [...chain] }, RESULT_LIFETIME_MS);
    deps.metrics.signed((deps.clock.monotonic() - startedAt) / 1000);
    deps.log.info({ identity: body.identity, attempt: attempt.attempt }, 'certificate.signed');
  } catch (error) {
    const failure = retryable(asMeshError(error, 'IDENTITY_UNAVAILABLE'));
    deps.metrics.failed(failure.code);
    await publishFailure(failure, attempt, deps);
    throw failure;
  }
}

async function checkRequest(body: SignBody, deps: SignJobDeps): Promise<void> {
  parseSpiffe(body.identity);
  const { uris } = await parseRequest(body.csr);
  if (uris.length !== 1 || uris[0] !== body.identity) {
    throw new MeshError(
      'IDENTITY_INVALID',
      `the CSR names ${uris.join(', ') || 'no identity'}, the job ${body.identity}`,
    );
  }
  const { identities, clock, node } = deps;
  if (await identities.appears(body.identity, IDENTITY_PATIENCE_MS, clock)) return;
  if (!identities.synced) {
    throw new MeshError(
      'IDENTITY_UNAVAILABLE',
      `the workloads of ${node} are not known yet: the mesh state has not been read`,
    );
  }
  throw new MeshError(
    'IDENTITY_REFUSED',
    `no workload with the identity ${body.identity} runs on ${node}`,
    { detail: { node } },
  );
}

/** Makes a missing or empty token file retryable, because it is put right from outside. */
function retryable(error: MeshError): MeshError {
  if (error.code !== 'IDENTITY_TOKEN') return error;
  return new MeshError('IDENTITY_UNAVAILABLE', error.message, {
    cause: error,
    detail: error.detail,
  });
}

async function publishFailure(
  failure: MeshError,
  attempt: JobAttempt,
  deps: SignJobDeps,
): Promise<void> {
  const wire = failure.toWire();
  const final = attempt.lastAttempt || failure.policy.retry === 'never';
  const body: Signed = {
    ok: false,
    // Number and time distinguish this failure from the one before.
    error: {
      ...wire,
      detail: { ...wire.detail, attempt: attempt.attempt, at: deps.clock.now() },
    },
    final,
  };
  try {
    await deps.board.put(attempt.id, body, RESULT_LIFETIME_MS);
  } catch (error) {
    // The failure itself is thrown; the queue's own retry needs no result.
    deps.log.warn(
      { id: attempt.id, problem: errorText(error) },
      'certificate.failure-not-published',
    );
  }
}

/** Logs roots that a CA sends and the bundle file lacks; they are never used. */
function reportRoots(chain: readonly string[], identity: string, deps: SignJobDeps): void {
  const trusted = deps.roots();
  const { roots } = parseCaAnswer(chain);
  if (trusted === null) return;
  for (const fingerprint of unknownRoots(roots, trusted)) {
    deps.metrics.unknownRoot();
    deps.log.warn({ identity, fingerprint }, 'certificate.unknown-root-ignored');
  }
}
