import {
  AggregatorRegistry,
  Counter,
  Gauge,
  Histogram,
  Registry,
  collectDefaultMetrics,
} from 'prom-client';
import { LoopTurns } from './loop-turns.ts';

/** One family of a registry; `type` is prom-client's word, e.g. `counter`. */
export interface RegistryFamily {
  readonly name: string;
  readonly help: string;
  readonly type: string;
  readonly samples: readonly {
    /** With its suffix where the family has several, e.g. `_bucket`. */
    readonly name: string;
    readonly labels: readonly (readonly [name: string, value: string])[];
    readonly value: number;
  }[];
}

/** Never, for a timer of libuv, milliseconds: prom-client looks at the event loop by a timer, which wakes an idle process. */
const NEVER_MS = 2 ** 31 - 1;
/** The gauges that prom-client fills by these looks. */
const LOOKS = ['min', 'max', 'mean', 'stddev', 'p50', 'p90', 'p99'] as const;

/** The metrics of one actor or process; every name is declared once, beside the code it measures. */
export class MetricRegistry {
  readonly #registry = new Registry();

  /** `defaultLabels` are added to every sample. */
  constructor(defaultLabels: Readonly<Record<string, string>> = {}) {
    this.#registry.setDefaultLabels(defaultLabels);
  }

  /** Adds the process's own metrics: CPU, memory, event-loop delay, descriptors. Once per process. */
  collectProcessMetrics(): void {
    collectDefaultMetrics({
      register: this.#registry,
      eventLoopMonitoringPrecision: NEVER_MS,
    });
    for (const look of LOOKS) {
      this.#registry.removeSingleMetric(`nodejs_eventloop_lag_${look}_seconds`);
    }
    const turns = new LoopTurns();
    this.gauge(
      'nodejs_eventloop_lag_max_seconds',
      'The longest turn of the event loop since the last scrape',
      [],
      (gauge) => gauge.set(turns.longest()),
    );
  }

  /** Declares a counter; `name` ends in `_total`. */
  counter<Label extends string>(
    name: string,
    help: string,
    labelNames: readonly Label[] = [],
  ): Counter<Label> {
    return new Counter({ name, help, labelNames: [...labelNames], registers: [this.#registry] });
  }

  /** Declares a gauge; `collect` may set it at scrape time. */
  gauge<Label extends string>(
    name: string,
    help: string,
    labelNames: readonly Label[] = [],
    collect?: (gauge: Gauge<Label>) => void | Promise<void>,
  ): Gauge<Label> {
    const gauge: Gauge<Label> = new Gauge({
      name,
      help,
      labelNames: [...labelNames],
      registers: [this.#registry],
      ...(collect === undefined ? {} : { collect: () => collect(gauge) }),
    });
    return gauge;
  }

  /** Declares a histogram; `buckets` in the unit of the name. */
  histogram<Label extends string>(
    name: string,
    help: string,
    buckets: readonly number[],
    labelNames: readonly Label[] = [],
  ): Histogram<Label> {
    return new Histogram({
      name,
      help,
      buckets: [...buckets],
      labelNames: [...labelNames],
      registers: [this.#registry],
    });
  }

  /** Everything in the Prometheus text format. */
  render(): Promise<string> {
    return this.#registry.metrics();
  }

  /** Every family with its samples as they are now, for renderings other than the text format. */
  async families(): Promise<readonly RegistryFamily[]> {
    const families = await this.#registry.getMetricsAsJSON();
    return families.map(({ name, help, type, values }) => ({
      name,
      help,
      type: String(type),
      samples: values.map((value) => ({
        name: 'metricName' in value ? String(value.metricName) : name,
        labels: Object.entries(value.labels).map(([label, text]) => [label, String(text)] as const),
        value: value.value,
      })),
    }));
  }

  /** All registries as one text; families that several share are merged. */
  static async renderAll(registries: readonly MetricRegistry[]): Promise<string> {
    const families = await Promise.all(
      registries.map((registry) => registry.#registry.getMetricsAsJSON()),
    );
    return AggregatorRegistry.aggregate(families).metrics();
  }
}
