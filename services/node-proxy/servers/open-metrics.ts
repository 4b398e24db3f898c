import type { RegistryFamily } from '../../../lib/metrics/registry.ts';
import type { MetricSample } from '../../../workers/listener/protocol/control.ts';

/** Content type of the OpenMetrics text, for clients that ask for it (docs/spec/observability.md §1). */
export const OPEN_METRICS_TYPE = 'application/openmetrics-text;charset=utf-8;version=1.0.0';

/** Groups samples of threads by family, in order of first appearance. */
export function familiesOf(samples: readonly MetricSample[]): RegistryFamily[] {
  return [...Map.groupBy(samples, familyName)].flatMap(([name, group]) => {
    const [first] = group;
    return first === undefined
      ? []
      : [{ name, type: first.kind, help: first.help, samples: group }];
  });
}

function familyName({ kind, name }: MetricSample): string {
  return kind === 'histogram' ? name.replace(/_(bucket|sum|count)$/, '') : name;
}

/** The OpenMetrics text. Families without samples are left out. */
export function renderOpenMetrics(families: readonly RegistryFamily[]): string {
  const lines: string[] = [];
  for (const { name: full, help, type, samples } of families) {
    if (samples.length === 0) continue;
    const name = type === 'counter' ? full.replace(/_total$/, '') : full;
    lines.push(`# HELP ${name} ${escapeHelp(flagged(name, help))}`);
    lines.push(`# TYPE ${name} ${TYPES.has(type) ? type : 'unknown'}`);
    for (const sample of samples) {
      lines.push(`${sample.name}${renderLabels(sample.labels)} ${renderValue(sample.value)}`);
    }
  }
  lines.push('# EOF', '');
  return lines.join('\n');
}

const TYPES: ReadonlySet<string> = new Set(['counter', 'gauge', 'histogram']);

/** Istio promises to keep these metrics; others with its prefix are flagged (docs/spec/observability.md §2). */
const STABLE: ReadonlySet<string> = new Set([
  'istio_tcp_connections_opened',
  'istio_tcp_connections_closed',
  'istio_tcp_received_bytes',
  'istio_tcp_sent_bytes',
  'istio_build',
]);

const UNSTABLE = '(unstable)';

function flagged(name: string, help: string): string {
  const stable = help.endsWith(UNSTABLE) || !name.startsWith('istio_') || STABLE.has(name);
  return stable ? help : `${help} ${UNSTABLE}`;
}

/** Returns true when an element of an Accept header asks for OpenMetrics. */
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
