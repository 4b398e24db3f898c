/** Asks the policy evaluator of a mesh, and renders its answer. */
import { EXPLAIN_BOARD, policyExplain } from '../../lib/bus/catalog.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { explainResultSchema } from '../../lib/policy/explain.ts';
import type { ExplainRequest, ExplainResult } from '../../lib/policy/explain.ts';
import { factLines } from './text-table.ts';
import type { Fact } from './text-table.ts';
import { ANSWER_TIMEOUT_MS, requestWork } from './work-request.ts';

const EXPLAIN = {
  job: policyExplain,
  board: EXPLAIN_BOARD,
  answer: explainResultSchema,
  actor: 'the policy evaluator',
};

/**
 * Requests an explanation. Throws BUS_TIMEOUT when there is no answer in time, and ROUTE_UNKNOWN_WORKLOAD when a
 * name in the request is unknown.
 */
export async function askExplain(
  bus: Bus,
  request: ExplainRequest,
  clock: Clock,
  timeoutMs = ANSWER_TIMEOUT_MS,
): Promise<ExplainResult> {
  return known(await requestWork(bus, EXPLAIN, request, clock, timeoutMs));
}

/** Returns an answer about known names. Throws ROUTE_UNKNOWN_WORKLOAD for another one. */
export function known(answer: ExplainResult): ExplainResult {
  if (answer.reason === 'unknown-source' || answer.reason === 'unknown-destination') {
    throw new MeshError('ROUTE_UNKNOWN_WORKLOAD', answer.detail);
  }
  return answer;
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
  const facts: readonly Fact[] = [
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
    ...factLines(facts, 19),
  ];
}

function ruleText(rule: number | null): string {
  return rule === null ? '' : `, rule ${rule}`;
}
