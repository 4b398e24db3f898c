/** Ports 15020 and 15021 as scrapers and probes see them. */
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import type { AdminHandler } from '../../../lib/actor/admin-routes.ts';
import { createLogger } from '../../../lib/log/logger.ts';
import { OnDemandDns } from '../../../lib/metrics/on-demand-dns.ts';
import { MetricRegistry } from '../../../lib/metrics/registry.ts';
import { TrafficMetrics } from '../../../lib/metrics/traffic.ts';
import { nodeProxyMetrics } from '../../../services/node-proxy/metrics.ts';
import { PortServer } from '../../../services/node-proxy/servers/port-server.ts';
import { readinessHandler } from '../../../services/node-proxy/servers/readiness.ts';
import { statsHandler } from '../../../services/node-proxy/servers/stats.ts';
import { ThreadMetrics } from '../../../workers/listener/thread-metrics.ts';
import { parseOpenMetrics } from '../../support/openmetrics.ts';
import { service, workload } from '../../support/workloads.ts';

const OPEN_METRICS = 'application/openmetrics-text';

async function serve(t: ExecutionContext, handler: AdminHandler) {
  const server = new PortServer(
    { name: 'test', port: 0, hosts: ['127.0.0.1'], handler },
    { log: createLogger({ actor: 'test', level: 'off' }), clock: systemClock },
  );
  await server.listen();
  t.teardown(() => server.close());
  return (path: string, init: RequestInit = {}) =>
    fetch(`http://127.0.0.1:${server.port}${path}`, init);
}

/** A handler over the real counters of a thread and of the process, with something in each. */
function realStats(): AdminHandler {
  const traffic = new TrafficMetrics();
  const facts = {
    reporter: 'source',
    sourceWorkload: workload({ workloadName: 'say "hi"\\\n' }),
    sourceBaggage: null,
    sourceIdentity: null,
    destinationWorkload: null,
    destinationBaggage: null,
    destinationIdentity: null,
    destinationService: service(),
    mutualTls: false,
  } as const;
  traffic.open(facts, () => ({ sent: 1, received: 2 })).close('CONNECT');
  traffic.open(facts, () => ({ sent: 1, received: 2 })).close('-');
  const metrics = new ThreadMetrics(0);
  metrics.connects.tunnel.observe(3);
  metrics.handshakes.client.observe(30);
  metrics.firstByte.source.observe(300);
  const onDemandDns = new OnDemandDns();
  onDemandDns.count(workload(), 'db.example.com');
  const registry = new MetricRegistry({ actor: 'node-proxy' });
  nodeProxyMetrics(registry, '1.2.3', {
    activePods: () => 1,
    pendingPods: () => 2,
    threads: () => 1,
    state: () => null,
    leavingPods: () => 0,
    proxies: () => [],
    crl: () => null,
    sharedPods: () => 0,
  });
  registry.histogram('weft_other_seconds', 'a histogram of the process', [0.5, 1]).observe(0.7);
  return statsHandler({
    traffic: async () => [
      ...traffic.samples(),
      ...onDemandDns.samples(),
      ...metrics.samples({
        pods: 1,
        cachedAnswers: 0,
        pools: [],
        splices: 0,
        budget: {
          connections: 0,
          handshakes: 0,
          waitingHandshakes: 0,
          heldBytes: 0,
          pressure: { now: 0, total: 0 },
          busiestPod: 0,
        },
        suppressedLines: { filter: 0, sample: 0, rate: 0, denials: 0 },
        droppedLines: 0,
      }),
    ],
    own: () => registry.families(),
    descriptors: async () => ({ open: 5, max: 10 }),
  });
}

// spec: observability.md §1
test('metrics are on two paths, by any method, and nowhere else', async (t) => {
  const ask = await serve(t, realStats());
  for (const path of ['/metrics', '/stats/prometheus']) {
    for (const method of ['GET', 'POST', 'DELETE']) {
      const answer = await ask(path, { method });
      t.is(answer.status, 200);
      t.is(answer.headers.get('content-type'), 'text/plain; charset=utf-8');
      t.true((await answer.text()).endsWith('\n# EOF\n'));
    }
  }
  t.is((await ask('/')).status, 404);
  t.is((await ask('/metrics/')).status, 404);
  const open = await ask('/metrics', { headers: { accept: `text/plain;q=0.5, ${OPEN_METRICS}` } });
  t.is(open.headers.get('content-type'), `${OPEN_METRICS};charset=utf-8;version=1.0.0`);
  for (const encoding of ['gzip', 'deflate', 'br', 'zstd']) {
    const packed = await ask('/metrics', { headers: { 'accept-encoding': encoding } });
    t.is(packed.headers.get('content-encoding'), encoding);
    if (encoding !== 'zstd') t.true((await packed.text()).endsWith('# EOF\n'));
  }
});

// spec: observability.md §2
// spec: inpod.md §9
test('the families are those of Istio, and the unstable ones say so', async (t) => {
  const ask = await serve(t, realStats());
  const page = await (await ask('/metrics')).text();
  const line = (start: string): string =>
    page.split('\n').find((text) => text.startsWith(start)) ?? '';
  for (const name of ['opened', 'closed', 'failed']) {
    t.regex(line(`istio_tcp_connections_${name}_total{`), / 1$| 2$/, name);
  }
  t.regex(line('istio_build{'), /^istio_build\{component="ztunnel",tag="1\.2\.3"\} 1$/);
  t.is(line('workload_manager_active_proxy_count'), 'workload_manager_active_proxy_count 1');
  t.is(line('workload_manager_pending_proxy_count'), 'workload_manager_pending_proxy_count 2');
  t.is(line('process_open_fds '), 'process_open_fds 5');
  t.is(line('process_max_fds '), 'process_max_fds 10');
  for (const stable of ['opened', 'closed']) {
    t.false(line(`# HELP istio_tcp_connections_${stable} `).includes('unstable'));
  }
  for (const name of ['istio_tcp_connections_failed', 'istio_tcp_sockets_open']) {
    t.true(line(`# HELP ${name} `).endsWith('(unstable)'), name);
  }
  t.false(page.includes('# HELP workload_manager_proxies_started_total'));
});

// spec: observability.md §1
test('the page is OpenMetrics to the reference parser', async (t) => {
  const ask = await serve(t, realStats());
  const page = await (await ask('/metrics', { headers: { accept: OPEN_METRICS } })).text();
  const families = await parseOpenMetrics(page);
  if (families === null) {
    t.log('SKIPPED: python3-prometheus-client is not installed; infra/setup.sh --test installs it');
    t.pass();
    return;
  }
  t.true(families.includes('weft_connect_duration_seconds histogram'));
  t.true(families.includes('weft_other_seconds histogram'));
  t.true(families.includes('istio_tcp_connections_opened counter'));
  t.true(families.includes('istio_on_demand_dns counter'));
  await t.throwsAsync(parseOpenMetrics('broken{ 1\n# EOF\n'), { message: /no OpenMetrics/ });
});

// spec: observability.md §5
test('readiness names what is pending, sorted, and takes a GET on one path', async (t) => {
  let pending: readonly string[] = ['state manager', 'proxy'];
  const ask = await serve(
    t,
    readinessHandler(() => pending),
  );
  const waiting = await ask('/healthz/ready');
  t.is(waiting.status, 500);
  t.is(await waiting.text(), 'not ready, pending: proxy, state manager\n');
  pending = [];
  const ready = await ask('/healthz/ready');
  t.deepEqual([ready.status, await ready.text()], [200, 'ready\n']);
  t.is((await ask('/healthz/ready', { method: 'POST' })).status, 405);
  t.is((await ask('/healthz')).status, 404);
});
