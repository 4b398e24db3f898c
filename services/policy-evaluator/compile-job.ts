import type { CompileBody } from '../../lib/bus/catalog.ts';
import type { JobAttempt } from '../../lib/bus/contract.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { TimeSlice } from '../../lib/async/time-slice.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { assembleProgram, compilePolicy, programWeight } from '../../lib/policy/compile.ts';
import type { CompiledPart } from '../../lib/policy/compile.ts';
import type { PolicyProgram } from '../../lib/policy/model.ts';
import type { NamedPolicy } from '../../lib/policy/named-policy.ts';
import type { PolicyStore } from '../../lib/policy/policy-store.ts';
import { CATCH_UP_MS, PROGRAM_CONDITIONS_MAX, SLICE_MS } from './limits.ts';
import type { CompileOutcome, EvaluatorMetrics } from './metrics.ts';
import type { ProgramTable } from './program-table.ts';

/** Dependencies of a compile job. */
export interface CompileJobDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: EvaluatorMetrics;
  readonly policies: PolicyStore;
  readonly programs: ReadonlySet<string>;
  readonly table: ProgramTable;
}

const CATCH_UP_STEP_MS = 50;

/**
 * Works on one compile job: policies → program → table. A repeated job changes nothing. Rejects with BUS_UNAVAILABLE when the
 * program cannot be written; the job is then tried again.
 */
export async function workOnCompileJob(
  body: CompileBody,
  attempt: JobAttempt,
  deps: CompileJobDeps,
): Promise<void> {
  const { clock, log, metrics } = deps;
  const startedMs = clock.monotonic();
  let outcome: CompileOutcome = 'failed';
  try {
    outcome = await compile(body, attempt, deps);
  } finally {
    metrics.compiled(outcome, (clock.monotonic() - startedMs) / 1_000);
  }
  log.info({ setId: body.setId, policies: body.keys.length, outcome }, 'policy.compiled');
}

async function compile(
  body: CompileBody,
  { signal }: JobAttempt,
  deps: CompileJobDeps,
): Promise<CompileOutcome> {
  const { log, programs, table } = deps;
  const { setId } = body;
  if (programs.has(setId)) return 'known';
  const policies = await members(body, signal, deps);
  if (policies === null) return 'obsolete';
  const weight = programWeight(policies);
  if (weight > PROGRAM_CONDITIONS_MAX) {
    log.warn({ setId, keys: body.keys.slice(0, 10), weight }, 'policy.set-too-large');
    return 'too-large';
  }
  await table.publish(await compileInSlices(setId, policies));
  return 'compiled';
}

/**
 * The policies of the set. Null when they have changed since the job was added: their new users have added a job for the new
 * set. A copy that is merely behind catches up first.
 */
async function members(
  { setId, keys }: CompileBody,
  signal: AbortSignal,
  { clock, policies }: CompileJobDeps,
): Promise<readonly NamedPolicy[] | null> {
  const endMs = clock.monotonic() + CATCH_UP_MS;
  for (;;) {
    const set = policies.setOf(keys);
    if (set.setId === setId) return set.policies;
    if (clock.monotonic() >= endMs) return null;
    await clock.sleep(CATCH_UP_STEP_MS, signal);
  }
}

async function compileInSlices(
  setId: string,
  policies: readonly NamedPolicy[],
): Promise<PolicyProgram> {
  const slice = new TimeSlice(SLICE_MS);
  const parts: CompiledPart[] = [];
  for (const policy of policies) {
    parts.push(compilePolicy(policy));
    await slice.breathe();
  }
  return assembleProgram(setId, parts);
}
