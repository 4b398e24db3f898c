/** Tests ports 15020 and 15021 as scrapers and probes see them. */
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import type { HttpHandler } from '../../../lib/http/routes.ts';
import { createLogger } from '../../../lib/log/logger.ts';
import { OnDemandDns } from '../../../lib/metrics/on-demand-dns.ts';
import { PeerTrust } from '../../../lib/hbone/peer-trust.ts';
import { MetricRegistry } from '../../../lib/metrics/registry.ts';
import { nodeProxyMetrics } from '../../../services/node-proxy/metrics.ts';
import { PortServer } from '../../../services/node-proxy/servers/port-server.ts';
import { readinessHandler } from '../../../services/node-proxy/servers/readiness.ts';
import { renderStats, statsHandler } from '../../../services/node-proxy/servers/stats.ts';
import type { StatsSources } from '../../../services/node-proxy/servers/stats.ts';
import { DnsMetrics } from '../../../workers/listener/dns/metrics.ts';
import { ThreadMetrics } from '../../../workers/listener/telemetry/thread-metrics.ts';
import { trustSamples } from '../../../workers/listener/telemetry/trust-metrics.ts';
import { parseOpenMetrics } from '../../support/openmetrics.ts';
import { trafficKit } from '../../support/series.ts';
import { service, workload } from '../../support/workloads.ts';

const OPEN_METRICS = 'application/openmetrics-text';

const DESCRIPTORS = 20_000;

async function serve(t: ExecutionContext, handler: HttpHandler, descriptors = DESCRIPTORS) {
  const server = new PortServer(
    { name: 'test', port: 0, hosts: ['127.0.0.1'], handler },
    { log: createLogger({ actor: 'test', level: 'off' }), clock: systemClock, descriptors },
  );
  await server.listen();
  t.teardown(() => server.close());
  return (path: string, init: RequestInit = {}) =>
    fetch(`http://127.0.0.1:${server.port}${path}`, init);
}

/** Makes a handler over the real counters of a thread and of the process, each with values. */
function realStats(): HttpHandler {
  const traffic = trafficKit();
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
  const onDemandDns = new OnDemandDns(traffic.writer);
  onDemandDns.count(workload(), 'db.example.com');
  const dns = new DnsMetrics(traffic.writer);
  const query = { type: 'a', protocol: 'udp', source: workload() } as const;
  dns.request(query);
  dns.forwarded(query, 50, true);
  dns.refresh();
  const log = createLogger({ actor: 'test', level: 'off' });
  const trust = new PeerTrust(
    { revocation: false, distrustGraceMs: 0 },
    { clock: systemClock, log },
  );
  const registry = new MetricRegistry({ actor: 'node-proxy' });
  const { pods } = nodeProxyMetrics(registry, '1.2.3', {
    activePods: () => 1,
    pendingPods: () => 2,
    threads: () => 1,
    state: () => null,
    leavingPods: () => 0,
    proxies: () => [],
    siblings: () => null,
    crl: () => null,
    sharedPods: () => 0,
  });
  pods.started();
  pods.stopped();
  registry.histogram('weft_other_seconds', 'a histogram of the process', [0.5, 1]).observe(0.7);
  const sources: StatsSources = {
    traffic: async () => [
      ...traffic.samples(),
      ...trustSamples(trust),
      ...metrics.samples({
        pods: 1,
        cachedAnswers: 0,
        heldEndpoints: 0,
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
  };
  return statsHandler(() => renderStats(sources));
}

test('a server that is closed while it begins to listen, or moves, listens nowhere', async (t) => {
  const deps = {
    log: createLogger({ actor: 'test', level: 'off' }),
    clock: systemClock,
    descriptors: DESCRIPTORS,
  };
  const hosts = ['127.0.0.1'];
  const handler: HttpHandler = async () => {};
  const early = new PortServer({ name: 'early', port: 0, hosts, handler }, deps);
  const listening = early.listen();
  await early.close();
  await listening;
  t.is(early.port, null);
  const probe = new PortServer({ name: 'probe', port: 0, hosts, handler }, deps);
  await probe.listen();
  const port = probe.port ?? 0;
  await probe.close();
  const moving = new PortServer({ name: 'moving', port, hosts, handler }, deps);
  await moving.listen();
  const yielding = moving.yield();
  await moving.close();
  await yielding;
  t.is(moving.port, null);
});

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

const SOURCE = [
  'source_workload',
  'source_canonical_service',
  'source_canonical_revision',
  'source_workload_namespace',
  'source_principal',
  'source_app',
  'source_version',
  'source_cluster',
];
const DNS_LABELS = [
  'request_query_type',
  'request_protocol',
  'source_canonical_service',
  'source_canonical_revision',
];

/** Upstream's families with their types, and the labels of their samples where they are few. The ingester has those of `istio_xds_*`. */
const FAMILIES: readonly [name: string, type: string, labels: readonly string[] | null][] = [
  ['istio_tcp_connections_opened', 'counter', null],
  ['istio_tcp_connections_closed', 'counter', null],
  ['istio_tcp_connections_failed', 'counter', null],
  ['istio_tcp_received_bytes', 'counter', null],
  ['istio_tcp_sent_bytes', 'counter', null],
  ['istio_tcp_sockets_open', 'gauge', ['reporter']],
  ['istio_on_demand_dns', 'counter', [...SOURCE, 'hostname']],
  ['istio_crl_policy_rejections', 'counter', ['reporter']],
  ['istio_crl_untracked_connections', 'counter', ['reporter']],
  ['istio_dns_requests', 'counter', DNS_LABELS],
  ['istio_dns_upstream_requests', 'counter', DNS_LABELS],
  ['istio_dns_upstream_failures', 'counter', DNS_LABELS],
  ['istio_dns_upstream_request_duration_seconds', 'histogram', [...DNS_LABELS, 'le']],
  ['istio_build', 'gauge', ['component', 'tag']],
  ['workload_manager_active_proxy_count', 'gauge', []],
  ['workload_manager_pending_proxy_count', 'gauge', []],
  ['workload_manager_proxies_started', 'counter', []],
  ['workload_manager_proxies_stopped', 'counter', []],
  ['process_open_fds', 'gauge', []],
  ['process_max_fds', 'gauge', []],
];
const SUFFIX: Readonly<Record<string, string>> = { counter: '_total', histogram: '_bucket' };

// spec: observability.md §2, spec: inpod.md §9
test('every family has its name, type and labels, and there are no others but our own', async (t) => {
  const ask = await serve(t, realStats());
  const lines = (await (await ask('/metrics')).text()).split('\n');
  const types = lines.filter((text) => text.startsWith('# TYPE ')).map((text) => text.slice(7));
  t.deepEqual(
    types.filter((text) => !text.startsWith('weft_')).toSorted(),
    FAMILIES.map(([name, type]) => `${name} ${type}`).toSorted(),
  );
  for (const [name, type, labels] of FAMILIES) {
    const sample = `${name}${SUFFIX[type] ?? ''}`;
    const found = lines.find(
      (text) => text.startsWith(`${sample}{`) || text.startsWith(`${sample} `),
    );
    const names = [...(found ?? 'none').matchAll(/[{,]([a-z_]+)="/g)].map(([, label]) => label);
    t.not(found, undefined, sample);
    if (labels !== null) t.deepEqual(names, [...labels], name);
  }
  // The metric has no value, because no lists are configured.
  t.false(lines.some((text) => text.includes('weft_crl_lists')));
  const bounds = lines
    .filter((text) => text.startsWith('istio_dns_upstream_request_duration_seconds_bucket{'))
    .map((text) => Number(/le="(.*?)"/.exec(text)?.[1]?.replace('+Inf', 'Infinity')));
  t.deepEqual(bounds, [0.0005, 0.001, 0.01, 0.1, 1, 5, Infinity]);
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
  t.is(line('workload_manager_proxies_started_total'), 'workload_manager_proxies_started_total 1');
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

test('a scraper does not get one of the last descriptors', async (t) => {
  const handler = readinessHandler(() => []);
  // The process has more descriptors open than the limit of 1.
  const refused = await serve(t, handler, 1);
  await t.throwsAsync(refused('/healthz/ready'));
  const served = await serve(t, handler);
  t.is((await served('/healthz/ready')).status, 200);
});
