import type { RegistryFamily } from '../../../lib/metrics/registry.ts';
import type { MetricSample } from '../../../workers/listener/protocol.ts';

/** Content type of the OpenMetrics text, for those who ask for it (docs/spec/observability.md §1). */
export const OPEN_METRICS_TYPE = 'application/openmetrics-text;charset=utf-8;version=1.0.0';

/** One family of samples. */
export interface MetricFamily {
  readonly name: string;
  readonly kind: 'counter' | 'gauge' | 'histogram' | 'unknown';
  readonly help: string;
  readonly samples: readonly {
    /** With suffix, e.g. `_total` or `_bucket`. */
    readonly name: string;
    readonly labels: readonly (readonly [name: string, value: string])[];
    readonly value: number;
  }[];
}

/** Samples of threads as families, in order of first appearance. */
export function familiesOf(samples: readonly MetricSample[]): MetricFamily[] {
  const groups = Map.groupBy(samples, familyName);
  return [...groups.values()].flatMap((group) => {
    const [first] = group;
    if (first === undefined) return [];
    const base = familyName(first);
    const samplesOf = group.map(({ name, labels, value }) => ({
      name: first.kind === 'counter' ? `${base}_total` : name,
      labels,
      value,
    }));
    return [{ name: base, kind: first.kind, help: first.help, samples: samplesOf }];
  });
}

/** The same under the names of a registry: counters keep their suffix. */
export function sampledFamilies(samples: readonly MetricSample[]): RegistryFamily[] {
  return familiesOf(samples).map(({ name, kind, help, samples: own }) => ({
    name: kind === 'counter' ? `${name}_total` : name,
    help,
    type: kind,
    samples: own,
  }));
}

function familyName({ kind, name }: MetricSample): string {
  if (kind === 'gauge') return name;
  return name.replace(kind === 'counter' ? /_total$/ : /_(bucket|sum|count)$/, '');
}

/** The OpenMetrics text. Families without samples are left out. */
export function renderOpenMetrics(families: readonly MetricFamily[]): string {
  const lines: string[] = [];
  for (const family of families) {
    if (family.samples.length === 0) continue;
    lines.push(`# HELP ${family.name} ${escapeHelp(helpOf(family))}`);
    lines.push(`# TYPE ${family.name} ${family.kind}`);
    for (const { name, labels, value } of family.samples) {
      lines.push(`${name}${renderLabels(labels)} ${renderValue(value)}`);
    }
  }
  lines.push('# EOF', '');
  return lines.join('\n');
}

/** Istio promises to keep these; others of its namespace are flagged (docs/spec/observability.md §2). */
const STABLE: ReadonlySet<string> = new Set([
  'istio_tcp_connections_opened',
  'istio_tcp_connections_closed',
  'istio_tcp_received_bytes',
  'istio_tcp_sent_bytes',
  'istio_build',
]);

const UNSTABLE = '(unstable)';

function helpOf({ name, help }: MetricFamily): string {
  const flagged = help.endsWith(UNSTABLE) || !name.startsWith('istio_') || STABLE.has(name);
  return flagged ? help : `${help} ${UNSTABLE}`;
}

/** True when any element of an Accept header asks for OpenMetrics. */
export function acceptsOpenMetrics(accept: string | undefined): boolean {
  return (accept ?? '')
    .split(',')
    .some((element) => element.split(';')[0]?.trim() === 'application/openmetrics-text');
}

function renderLabels(labels: readonly (readonly [string, string])[]): string {
  if (labels.length === 0) return '';
  return `{${labels.map(([name, value]) => `${name}="${escapeLabel(value)}"`).join(',')}}`;
}

function renderValue(value: number): string {
  if (value === Infinity) return '+Inf';
  if (value === -Infinity) return '-Inf';
  return String(value);
}

function escapeLabel(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}

function escapeHelp(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
}
