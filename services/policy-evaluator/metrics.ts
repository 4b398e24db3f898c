import type { MetricRegistry } from '../../lib/metrics/registry.ts';

/** Outcome of a compile job: `known` = there was a program already, `obsolete` = the policies have changed since. */
export type CompileOutcome = 'compiled' | 'known' | 'obsolete' | 'too-large' | 'failed';

/** Counters of the evaluator. */
export interface EvaluatorMetrics {
  compiled(outcome: CompileOutcome, seconds: number): void;
  explained(outcome: 'allowed' | 'denied' | 'no-path'): void;
  requested(): void;
  dropped(count: number): void;
  unreadable(table: string): void;
}

/** Sources of the gauges, called at every scrape. */
export interface EvaluatorSources {
  readonly policies: () => number;
  readonly rejected: () => number;
  readonly workloads: () => number;
  readonly sets: () => number;
  readonly waiting: () => number;
  readonly programs: () => number;
  readonly unknownReferences: () => number;
}

const SECONDS_BUCKETS = [0.0005, 0.002, 0.01, 0.05, 0.2, 1, 5];

/** Declares the evaluator's metrics. */
export function createEvaluatorMetrics(
  registry: MetricRegistry,
  sources: EvaluatorSources,
): EvaluatorMetrics {
  declareGauges(registry, sources);
  const compiles = registry.counter('weft_policy_compiles_total', 'Compile jobs by outcome', [
    'outcome',
  ]);
  const seconds = registry.histogram(
    'weft_policy_compile_seconds',
    'Time from taking a compile job to its program being written',
    SECONDS_BUCKETS,
  );
  const explains = registry.counter('weft_policy_explains_total', 'Explain answers by outcome', [
    'outcome',
  ]);
  const requests = registry.counter('weft_policy_requests_total', 'Compile jobs added');
  const drops = registry.counter('weft_policy_programs_dropped_total', 'Unused programs removed');
  const unreadable = registry.counter(
    'weft_policy_unreadable_rows_total',
    'Rows whose contents could not be decoded; the earlier contents stay in force',
    ['table'],
  );
  return {
    compiled: (outcome, took) => {
      compiles.inc({ outcome });
      if (outcome === 'compiled') seconds.observe(took);
    },
    explained: (outcome) => explains.inc({ outcome }),
    requested: () => requests.inc(),
    dropped: (count) => drops.inc(count),
    unreadable: (table) => unreadable.inc({ table }),
  };
}

function declareGauges(registry: MetricRegistry, sources: EvaluatorSources): void {
  const gauges: readonly (readonly [string, string, () => number])[] = [
    ['weft_policy_policies', 'Policies in force', sources.policies],
    [
      'weft_policy_rejected',
      'Policies whose newest version could not be decoded',
      sources.rejected,
    ],
    ['weft_policy_workloads', 'Workloads that policies are computed for', sources.workloads],
    ['weft_policy_sets', 'Distinct policy sets in use', sources.sets],
    ['weft_policy_sets_waiting', 'Sets in use without a published program', sources.waiting],
    ['weft_policy_programs', 'Programs published', sources.programs],
    [
      'weft_policy_unknown_references',
      'Policy keys that workloads list and that are not known',
      sources.unknownReferences,
    ],
  ];
  for (const [name, help, value] of gauges) {
    registry.gauge(name, help, [], (gauge) => gauge.set(value()));
  }
}
