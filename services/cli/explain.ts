/** Asks the policy evaluator of a mesh, and renders its answer. */
import { randomBytes } from 'node:crypto';
import { EXPLAIN_BOARD, policyExplain } from '../../lib/bus/catalog.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import type { WorkQueue } from '../../lib/bus/work-queue.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { explainResultSchema } from '../../lib/policy/explain.ts';
import type { ExplainRequest, ExplainResult } from '../../lib/policy/explain.ts';

/** Time limit for the answer; a running evaluator answers within milliseconds. */
export const EXPLAIN_TIMEOUT_MS = 10_000;
/** Interval between attempts to add the job while the queue's connection opens. */
const RETRY_MS = 50;

/**
 * Requests an explanation. Throws BUS_TIMEOUT when there is no answer in time, and ROUTE_UNKNOWN_WORKLOAD when a
 * name in the request is unknown.
 */
export async function askExplain(
  bus: Bus,
  request: ExplainRequest,
  clock: Clock,
  timeoutMs = EXPLAIN_TIMEOUT_MS,
): Promise<ExplainResult> {
  const end = clock.monotonic() + timeoutMs;
  const id = `cli-${randomBytes(8).toString('hex')}`;
  const queue = bus.queue(policyExplain, 'mesh');
  const board = bus.results(EXPLAIN_BOARD, 'mesh', explainResultSchema);
  await handIn(queue, id, request, clock, end);
  const answer = await board.wait(id, Math.max(0, end - clock.monotonic()));
  if (answer === null) {
    // Nobody waits for the answer any more.
    await queue.remove(id);
    throw new MeshError(
      'BUS_TIMEOUT',
      `the policy evaluator did not answer within ${timeoutMs / 1_000} s; is it running? see: weft status`,
    );
  }
  if (answer.reason === 'unknown-source' || answer.reason === 'unknown-destination') {
    throw new MeshError('ROUTE_UNKNOWN_WORKLOAD', answer.detail);
  }
  return answer;
}

/** Adds the job. A queue opens its connection on first use and refuses jobs until it is open. */
async function handIn(
  queue: WorkQueue<ExplainRequest>,
  id: string,
  request: ExplainRequest,
  clock: Clock,
  end: number,
): Promise<void> {
  for (;;) {
    try {
      await queue.add(id, request);
      return;
    } catch (error) {
      const again = error instanceof MeshError && error.code === 'BUS_UNAVAILABLE';
      if (!again || clock.monotonic() >= end) throw error;
      await clock.sleep(RETRY_MS);
    }
  }
}

const PATHS: Readonly<Record<ExplainResult['path'], string>> = {
  passthrough: 'passthrough (plain TCP)',
  hbone: 'HBONE',
  'same-node': 'same node',
  waypoint: 'waypoint',
  'double-hbone': 'HBONE inside HBONE, through the gateway of another network',
  none: 'none',
};

/** Renders the answer as text: the verdict, its reason, and the path of the traffic. */
export function explainLines(request: ExplainRequest, result: ExplainResult): string[] {
  const { from, to } = request;
  const facts: readonly (readonly [string, string | null])[] = [
    ['policy', result.policy === null ? null : `${result.policy}${ruleText(result.rule)}`],
    ['reason', result.reason],
    ['path', PATHS[result.path]],
    ['service', result.service],
    ['endpoint', result.to],
    ['next hop', result.nextHop],
    ['workload', result.workload],
    ['source identity', result.from],
    ['expected identity', result.expectedSans.join(', ') || null],
    ['dry run', result.dryRun.join(', ') || null],
  ];
  return [
    `${result.allowed ? 'ALLOWED' : 'DENIED'}: ${from.namespace}/${from.pod} to ${to.namespace}/${to.name}:${to.port}`,
    ...(result.detail === '' ? [] : [`  ${result.detail}`]),
    ...facts.flatMap(([name, value]) =>
      value === null ? [] : [`  ${`${name}:`.padEnd(19)}${value}`],
    ),
  ];
}

function ruleText(rule: number | null): string {
  return rule === null ? '' : `, rule ${rule}`;
}
