import type { AdminHandler } from '../../../lib/actor/admin-routes.ts';
import { sendText } from '../../../lib/actor/admin-routes.ts';
import type { RegistryFamily } from '../../../lib/metrics/registry.ts';
import type { MetricSample } from '../../../workers/listener/protocol.ts';
import { encodeBody } from './content-encoding.ts';
import {
  OPEN_METRICS_TYPE,
  acceptsOpenMetrics,
  familiesOf,
  renderOpenMetrics,
} from './open-metrics.ts';
import type { MetricFamily } from './open-metrics.ts';

/** Where the samples come from. */
export interface StatsSources {
  /** Summed over the listener threads. */
  traffic(): Promise<readonly MetricSample[]>;
  /** The process's own. */
  own(): Promise<readonly RegistryFamily[]>;
  descriptors(): Promise<{ readonly open: number; readonly max: number | null }>;
}

/** Set by the host on everything an actor counts; says nothing where there is one actor. */
const HOST_LABEL = 'actor';

/** The OpenMetrics text of the whole process. */
export async function renderStats(sources: StatsSources): Promise<string> {
  const [traffic, own, descriptors] = await Promise.all([
    sources.traffic(),
    sources.own(),
    sources.descriptors(),
  ]);
  return renderOpenMetrics([
    ...familiesOf(traffic),
    ...own.map(ownFamily),
    gauge('process_open_fds', 'Number of open file descriptors', descriptors.open),
    ...(descriptors.max === null
      ? []
      : [gauge('process_max_fds', 'Maximum number of open file descriptors', descriptors.max)]),
  ]);
}

/** Port 15020: `/metrics` and `/stats/prometheus`, any method (docs/spec/observability.md §1). */
export function statsHandler(page: () => Promise<string>): AdminHandler {
  return async (request, response, url) => {
    if (url.pathname !== '/metrics' && url.pathname !== '/stats/prometheus') {
      sendText(response, 404, 'not found\n');
      return;
    }
    const text = await page();
    const { encoding, body } = await encodeBody(
      text,
      headerText(request.headers['accept-encoding']),
    );
    response.writeHead(200, {
      'content-type': acceptsOpenMetrics(request.headers.accept)
        ? OPEN_METRICS_TYPE
        : 'text/plain; charset=utf-8',
      'content-length': body.length,
      ...(encoding === null ? {} : { 'content-encoding': encoding }),
    });
    response.end(body);
  };
}

function ownFamily(family: RegistryFamily): MetricFamily {
  const counter = family.type === 'counter';
  const base = counter ? family.name.replace(/_total$/, '') : family.name;
  return {
    name: base,
    kind: counter ? 'counter' : kindOf(family.type),
    help: family.help,
    samples: family.samples.map(({ name, labels, value }) => ({
      name: counter ? `${base}_total` : name,
      labels: labels.filter(([label]) => label !== HOST_LABEL),
      value,
    })),
  };
}

function kindOf(type: string): MetricFamily['kind'] {
  return type === 'gauge' || type === 'histogram' ? type : 'unknown';
}

function gauge(name: string, help: string, value: number): MetricFamily {
  return { name, kind: 'gauge', help, samples: [{ name, labels: [], value }] };
}

function headerText(header: string | string[] | undefined): string | undefined {
  return Array.isArray(header) ? header.join(',') : header;
}
