import type { HttpHandler } from '../../../lib/http/routes.ts';
import { sendText } from '../../../lib/http/answers.ts';
import type { RegistryFamily } from '../../../lib/metrics/registry.ts';
import type { MetricSample } from '../../../workers/listener/protocol/control.ts';
import { encodeBody } from './content-encoding.ts';
import {
  OPEN_METRICS_TYPE,
  acceptsOpenMetrics,
  familiesOf,
  renderOpenMetrics,
} from './open-metrics.ts';

/** Returns the samples of the page. */
export interface StatsSources {
  /** Samples summed over the listener threads. */
  traffic(): Promise<readonly MetricSample[]>;
  /** Families of the process itself. */
  own(): Promise<readonly RegistryFamily[]>;
  descriptors(): Promise<{ readonly open: number; readonly max: number | null }>;
}

/** The host sets this label on all metrics of an actor. The page is about one actor, so it leaves the label out. */
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
    ...own.map(withoutHost),
    gauge('process_open_fds', 'Number of open file descriptors', descriptors.open),
    ...(descriptors.max === null
      ? []
      : [gauge('process_max_fds', 'Maximum number of open file descriptors', descriptors.max)]),
  ]);
}

/** Serves `/metrics` and `/stats/prometheus` of port 15020, by any method (docs/spec/observability.md §1). */
export function statsHandler(page: () => Promise<string>): HttpHandler {
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

function withoutHost(family: RegistryFamily): RegistryFamily {
  const samples = family.samples.map(({ labels, ...sample }) => ({
    ...sample,
    labels: labels.filter(([label]) => label !== HOST_LABEL),
  }));
  return { ...family, samples };
}

function gauge(name: string, help: string, value: number): RegistryFamily {
  return { name, type: 'gauge', help, samples: [{ name, labels: [], value }] };
}

function headerText(header: string | string[] | undefined): string | undefined {
  return Array.isArray(header) ? header.join(',') : header;
}
