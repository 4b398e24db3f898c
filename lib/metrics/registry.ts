import {
  AggregatorRegistry,
  Counter,
  Gauge,
  Histogram,
  Registry,
  collectDefaultMetrics,
} from 'prom-client';

/** The metrics of one actor or process; every name is declared once, beside the code it measures. */
export class MetricRegistry {
  readonly #registry = new Registry();

  /** `defaultLabels` are added to every sample. */
  constructor(defaultLabels: Readonly<Record<string, string>> = {}) {
    this.#registry.setDefaultLabels(defaultLabels);
  }

  /** Adds the process's own metrics: CPU, memory, event-loop delay, descriptors. Once per process. */
  collectProcessMetrics(): void {
    collectDefaultMetrics({ register: this.#registry });
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

  /** All registries as one text; families that several share are merged. */
  static async renderAll(registries: readonly MetricRegistry[]): Promise<string> {
    const families = await Promise.all(
      registries.map((registry) => registry.#registry.getMetricsAsJSON()),
    );
    return AggregatorRegistry.aggregate(families).metrics();
  }
}
