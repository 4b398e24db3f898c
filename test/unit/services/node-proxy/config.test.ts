import test from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { nodeProxyConfig } from '../../../../services/node-proxy/config.ts';
import { PRESENCE_AGE_MS } from '../../../../services/node-proxy/limits.ts';

const parse = (environment: Record<string, string> = {}) =>
  nodeProxyConfig.parse({ REDIS_URL: 'unix:///run/redis.sock', ...environment });

function codeOf(run: () => unknown): string | null {
  try {
    run();
    return null;
  } catch (error) {
    return error instanceof MeshError ? `${error.code} ${error.message}` : String(error);
  }
}

// spec: observability.md §6
test('the defaults are those of upstream', (t) => {
  const config = parse();
  t.like(config, {
    zdsPath: '/var/run/ztunnel/ztunnel.sock',
    podDrainMs: 5_000,
    roots: { kind: 'file', path: './var/run/secrets/istio/root-cert.pem' },
    ports: { admin: 15_000, stats: 15_020, readiness: 15_021 },
    istioVersion: 'unknown',
    crlPath: null,
    own: null,
    dedicatedTo: null,
    local: null,
  });
  t.like(config.listener, {
    network: '',
    clusterDomain: 'cluster.local',
    ipv6: true,
    portReuse: true,
    localhostAppTunnel: true,
    authzInfoLogging: false,
    tls12: false,
    compliance: null,
    revocation: false,
    dnsOnly: false,
    packetMark: 1_337,
    originalSource: 'auto',
    keepalive: { enabled: true, timeMs: 180_000, intervalMs: 180_000, retries: 9 },
    userTimeoutMs: 0,
    responseBaggage: true,
    policyUnknownReference: 'deny',
    ports: { outbound: 15_001, inboundPlaintext: 15_006, inboundHbone: 15_008, socks5: null },
  });
  t.like(config.listener.http2, {
    streamWindow: 4_194_304,
    connectionWindow: 16_777_216,
    frameSize: 1_048_576,
    maxStreamsPerConnection: 100,
    idleReleaseMs: 300_000,
  });
  t.is(config.listener.connectTimeoutMs, 10_000);
  t.like(config.listener.dns, { port: 15_053, preferredNamespace: null });
});

// spec: dataplane.md §9
test('socket timeouts that the kernel refuses are refused', (t) => {
  const refusal = (environment: Record<string, string>) => codeOf(() => parse(environment)) ?? '';
  t.like(parse({ KEEPALIVE_TIME: '32767s', KEEPALIVE_INTERVAL: '32767s' }).listener, {
    keepalive: { enabled: true, timeMs: 32_767_000, intervalMs: 32_767_000, retries: 9 },
  });
  for (const name of ['KEEPALIVE_TIME', 'KEEPALIVE_INTERVAL']) {
    for (const value of ['32768s', '32767001ms', '10h']) {
      t.regex(refusal({ [name]: value }), new RegExp(`^CONFIG_INVALID .*${name} .*32767s`), value);
    }
  }
  const long = {
    KEEPALIVE_TIME: '9h',
    KEEPALIVE_INTERVAL: '9h',
    KEEPALIVE_RETRIES: '127',
  };
  t.is(parse(long).listener.userTimeoutMs, 0);
  t.regex(
    refusal({ ...long, USER_TIMEOUT_ENABLED: 'true' }),
    /^CONFIG_INVALID USER_TIMEOUT_ENABLED .*2147483647ms/,
  );
});

// spec: observability.md §6
test('a ProxyConfig sets ports, threads and metadata; variables go before its metadata', (t) => {
  const text = `
proxyAdminPort: 16000
statsPort: 16020
concurrency: 3
proxyMetadata: { ISTIO_META_ISTIO_VERSION: "1.30" }
`;
  const config = parse({ PROXY_CONFIG: text, ZTUNNEL_WORKER_THREADS: '9' });
  t.deepEqual(config.ports, { admin: 16_000, stats: 16_020, readiness: 15_021 });
  t.is(config.threads, 3);
  t.is(config.istioVersion, '1.30');
  t.is(parse({ PROXY_CONFIG: text, ISTIO_META_ISTIO_VERSION: 'own' }).istioVersion, 'own');
});

// spec: observability.md §6
test('a ProxyConfig without proxyMetadata is refused', (t) => {
  t.regex(
    codeOf(() => parse({ PROXY_CONFIG: 'concurrency: 2' })) ?? '',
    /^CONFIG_INVALID .*PROXY_CONFIG .*proxyMetadata is required/,
  );
});

test('settings that ask for what is not built are refused, all at once', (t) => {
  const refusal = codeOf(() =>
    parse({
      FAKE_CA: 'true',
    }),
  );
  t.regex(refusal ?? '', /^CONFIG_UNSUPPORTED .*FAKE_CA/);
  t.regex(
    codeOf(() => parse({ PROXY_CONFIG: '{proxyMetadata: {FAKE_CA: "true"}}' })) ?? '',
    /^CONFIG_UNSUPPORTED /,
  );
});

test('a mesh on demand is refused together with the DNS proxy, and without a control plane', (t) => {
  const onDemand = { XDS_ON_DEMAND: 'true' };
  t.regex(
    codeOf(() => parse(onDemand)) ?? '',
    /^CONFIG_INVALID .*XDS_ON_DEMAND.* ISTIO_META_DNS_CAPTURE=false/,
  );
  const noDns = { ISTIO_META_DNS_CAPTURE: 'false' };
  const config = parse({ ...onDemand, ...noDns, CLUSTER_ID: 'c1' });
  t.deepEqual(config.onDemand, { waitMs: 5_000, clusterId: 'c1' });
  t.is(config.listener.onDemandWaitMs, 5_000);
  const inMetadata = '{proxyMetadata: {XDS_ON_DEMAND: "true"}}';
  t.is(parse({ ...noDns, PROXY_CONFIG: inMetadata }).onDemand?.waitMs, 5_000);
  t.is(
    parse({ ...noDns, ...onDemand, XDS_ON_DEMAND: 'false', PROXY_CONFIG: inMetadata }).onDemand,
    null,
  );
  t.is(parse({}).onDemand, null);
});

// spec: observability.md §6
test('dedicated mode serves the workload it is told, unmarked unless a mark is set', (t) => {
  const dedicated = { PROXY_MODE: 'dedicated', PROXY_WORKLOAD_INFO: 'demo/api-0/api' };
  const config = parse({ ...dedicated, POD_NAME: 'a', POD_NAMESPACE: 'b', SERVICE_ACCOUNT: 'c' });
  t.deepEqual(config.dedicatedTo, { namespace: 'demo', name: 'api-0', serviceAccount: 'api' });
  t.is(config.own, null);
  t.like(config.listener, { packetMark: 0, marksUpstreamOnly: true });
  t.is(config.listener.dns?.searchDomains, 'resolv.conf');
  t.is(parse({ ...dedicated, PACKET_MARK: '7' }).listener.packetMark, 7);
  const shared = parse({ PROXY_MODE: 'shared', PROXY_WORKLOAD_INFO: 'demo/api-0/api' });
  t.is(shared.dedicatedTo, null);
  t.like(shared.listener, { packetMark: 1_337, marksUpstreamOnly: false });
});

test('dedicated mode without a workload, or with half of one, is refused', (t) => {
  const refusal = (environment: Record<string, string>) =>
    codeOf(() => parse({ PROXY_MODE: 'dedicated', ...environment })) ?? '';
  t.regex(refusal({}), /^CONFIG_INVALID PROXY_WORKLOAD_INFO is required/);
  const malformed = ['api', 'demo/api', 'demo/api/', '/api/sa', 'a/b/c/d', 'demo/a b/sa', 'd/../s'];
  for (const info of malformed) {
    t.regex(
      refusal({ PROXY_WORKLOAD_INFO: info }),
      /^CONFIG_INVALID .*PROXY_WORKLOAD_INFO .*namespace\/name\/serviceAccount/,
      info,
    );
  }
  t.regex(refusal({ PROXY_MODE: 'sidecar' }), /^CONFIG_INVALID .*PROXY_MODE/);
});

test('SOCKS5 is off unless it is asked for', (t) => {
  t.is(parse().listener.ports.socks5, null);
  t.is(parse({ UNSTABLE_ENABLE_SOCKS5: 'true' }).listener.ports.socks5, 15_080);
});

test('the DNS proxy is on unless it is set to something else than true (spec: dns.md §1)', (t) => {
  const on = {
    address: null,
    port: 15_053,
    preferredNamespace: null,
    searchDomains: null,
  };
  t.deepEqual(parse().listener.dns, on);
  t.deepEqual(parse({ ISTIO_META_DNS_CAPTURE: 'TRUE' }).listener.dns, on);
  t.is(parse({ ISTIO_META_DNS_CAPTURE: 'yes' }).listener.dns, null);
  const metadata = (value: string) => ({ PROXY_CONFIG: `{proxyMetadata: {${value}}}` });
  t.is(parse(metadata('ISTIO_META_DNS_CAPTURE: "false"')).listener.dns, null);
  t.like(parse({ ISTIO_META_DNS_PROXY_ADDR: '127.0.0.9:53' }).listener.dns, {
    address: '127.0.0.9',
    port: 53,
  });
  t.like(parse(metadata('ISTIO_META_DNS_PROXY_ADDR: "localhost:5353"')).listener.dns, {
    address: null,
    port: 5_353,
  });
  t.regex(
    codeOf(() => parse({ ISTIO_META_DNS_PROXY_ADDR: 'here' })) ?? '',
    /ISTIO_META_DNS_PROXY_ADDR .*localhost:port/,
  );
  t.like(parse({ PREFERED_SERVICE_NAMESPACE: 'shared' }).listener.dns, {
    preferredNamespace: 'shared',
  });
});

test('the drain deadline follows the grace period unless it is set', (t) => {
  t.is(parse({ TERMINATION_GRACE_PERIOD_SECONDS: '30' }).podDrainMs, 25_000);
  t.is(parse({ TERMINATION_GRACE_PERIOD_SECONDS: '10' }).podDrainMs, 9_000);
  t.is(
    parse({ TERMINATION_GRACE_PERIOD_SECONDS: '30', CONNECTION_TERMINATION_DEADLINE: '1s' })
      .podDrainMs,
    1_000,
  );
});

test('sizes HTTP/2 does not allow are refused', (t) => {
  t.regex(codeOf(() => parse({ HTTP2_FRAME_SIZE: '100' })) ?? '', /HTTP2_FRAME_SIZE .*16384/);
  t.regex(codeOf(() => parse({ HTTP2_STREAM_WINDOW_SIZE: '4GiB' })) ?? '', /65535/);
});

test('the user timeout spans all probes', (t) => {
  t.is(
    parse({ USER_TIMEOUT_ENABLED: 'true', KEEPALIVE_TIME: '10s', KEEPALIVE_INTERVAL: '2s' })
      .listener.userTimeoutMs,
    28_000,
  );
});

test('a compliance policy nobody knows is refused, and one that TLS 1.2 cannot keep', (t) => {
  t.regex(codeOf(() => parse({ COMPLIANCE_POLICY: 'fips' })) ?? '', /COMPLIANCE_POLICY/);
  t.regex(
    codeOf(() => parse({ COMPLIANCE_POLICY: 'pqc', TLS12_ENABLED: 'true' })) ?? '',
    /TLS12_ENABLED contradicts COMPLIANCE_POLICY=pqc/,
  );
  const { listener, crlPath } = parse({ COMPLIANCE_POLICY: 'pqc', CRL_PATH: '/crl.pem' });
  t.is(listener.compliance, 'pqc');
  t.true(listener.revocation);
  t.is(crlPath, '/crl.pem');
});

test('the socket of siblings is unset, and never that of the node agent', (t) => {
  t.is(parse().siblingsPath, null);
  t.is(parse({ WEFT_NODE_PROXY_SIBLINGS: '/run/s.sock' }).siblingsPath, '/run/s.sock');
  t.regex(
    codeOf(() => parse({ INPOD_UDS: '/run/z.sock', WEFT_NODE_PROXY_SIBLINGS: '/run/z.sock' })) ??
      '',
    /^CONFIG_INVALID WEFT_NODE_PROXY_SIBLINGS must be another path than INPOD_UDS/,
  );
});

test('a local file is the whole state only where there is no control plane; xds-ingester adds it otherwise', (t) => {
  const none = { XDS_ADDRESS: '' };
  t.is(parse(none).local, null);
  t.deepEqual(parse({ ...none, LOCAL_XDS_PATH: '/state.yaml' }).local, { path: '/state.yaml' });
  t.deepEqual(parse({ ...none, LOCAL_XDS: 'workloads: []' }).local, { text: 'workloads: []' });
  t.is(parse({ LOCAL_XDS_PATH: '/state.yaml' }).local, null);
  t.is(parse({ XDS_ADDRESS: 'https://istiod:15012', LOCAL_XDS: '{}' }).local, null);
  t.regex(
    codeOf(() => parse({ LOCAL_XDS_PATH: '/state.yaml', LOCAL_XDS: '{}' })) ?? '',
    /^CONFIG_INVALID .*must not both be set/,
  );
});

test('a local file does not do without Redis, and the refusal says why', (t) => {
  const refusal = codeOf(() => nodeProxyConfig.parse({ XDS_ADDRESS: '', LOCAL_XDS: '{}' }));
  t.regex(refusal ?? '', /^CONFIG_INVALID REDIS_URL is required.* signed by way of Redis/);
  t.regex(codeOf(() => nodeProxyConfig.parse({})) ?? '', /REDIS_URL is required/);
});

// spec: observability.md §6
test('DNS may be all a proxy does, but not nothing', (t) => {
  t.false(parse().listener.dnsOnly);
  const own = { POD_NAME: 'a', POD_NAMESPACE: 'b', SERVICE_ACCOUNT: 'c' };
  const config = parse({ ENABLE_PROXY: 'false', ...own });
  t.true(config.listener.dnsOnly);
  t.is(config.own, null, 'no tunnels to the proxy itself');
  t.regex(
    codeOf(() => parse({ ENABLE_PROXY: 'false', ISTIO_META_DNS_CAPTURE: 'false' })) ?? '',
    /^CONFIG_INVALID ENABLE_PROXY=false .*ISTIO_META_DNS_CAPTURE/,
  );
});

test('what becomes of traffic around a waypoint is said by the setting, else by whose control plane it is', (t) => {
  const applies = (environment: Record<string, string>) =>
    parse(environment).listener.waypointBypass;
  t.is(applies({}), 'allow');
  t.is(applies({ WEFT_XDS_CONTROL_PLANE: 'istio' }), 'allow');
  t.is(applies({ WEFT_XDS_CONTROL_PLANE: 'weft' }), 'deny');
  for (const plane of ['istio', 'weft']) {
    for (const bypass of ['allow', 'deny']) {
      t.is(
        applies({ WEFT_XDS_CONTROL_PLANE: plane, WEFT_WAYPOINT_BYPASS: bypass }),
        bypass as 'allow' | 'deny',
      );
    }
  }
  t.regex(codeOf(() => parse({ WEFT_XDS_CONTROL_PLANE: 'other' })) ?? '', /CONFIG_INVALID.*istio/);
});

test("under Istio's control plane a ztunnel may serve the node's pods, which Redis does not show", (t) => {
  // Longer than a proxy takes to announce itself in a Redis that was replaced.
  const own = parse({ WEFT_XDS_CONTROL_PLANE: 'weft' }).strangersMs;
  t.true(own > PRESENCE_AGE_MS && parse().strangersMs > own);
  const dedicated = { PROXY_MODE: 'dedicated', PROXY_WORKLOAD_INFO: 'demo/api-0/api' };
  t.is(parse(dedicated).strangersMs, 0);
});
