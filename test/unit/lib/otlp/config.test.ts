import test from 'ava';
import { hostConfig } from '../../../../lib/actor/host-config.ts';
import type { OtlpSettings } from '../../../../lib/otlp/settings.ts';

const ENDPOINT = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' };

function settings(environment: Record<string, string>): OtlpSettings | null {
  return hostConfig.parse(environment).otlp;
}

function problem(environment: Record<string, string>): string {
  try {
    settings(environment);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  return 'none';
}

test('nothing is exported without an endpoint, nor where it is switched off', (t) => {
  t.is(settings({}), null);
  t.is(settings({ OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc', OTEL_SERVICE_NAME: 'x' }), null);
  t.is(settings({ ...ENDPOINT, OTEL_SDK_DISABLED: 'TRUE' }), null);
  t.is(
    settings({
      ...ENDPOINT,
      OTEL_TRACES_EXPORTER: 'none',
      OTEL_METRICS_EXPORTER: 'none',
      OTEL_LOGS_EXPORTER: 'none',
    }),
    null,
  );
});

test('one endpoint serves all signals, with the standard defaults', (t) => {
  const shared = {
    headers: {},
    timeoutMs: 10_000,
    gzip: false,
    caFile: null,
    certificateFile: null,
    keyFile: null,
  };
  const base = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318/otlp/' };
  t.deepEqual(settings(base), {
    resource: {},
    traces: {
      ...shared,
      url: 'http://collector:4318/otlp/v1/traces',
      queue: { maxItems: 2_048, batchItems: 512, delayMs: 5_000 },
      share: 1,
    },
    metrics: { ...shared, url: 'http://collector:4318/otlp/v1/metrics', intervalMs: 60_000 },
    logs: {
      ...shared,
      url: 'http://collector:4318/otlp/v1/logs',
      queue: { maxItems: 2_048, batchItems: 512, delayMs: 1_000 },
    },
  });
});

test('the variable of a signal goes before that of all', (t) => {
  const found = settings({
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://[::1]:4318/spans',
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20one, X-Tenant = mesh',
    OTEL_EXPORTER_OTLP_TRACES_HEADERS: 'Authorization=Bearer%20two',
    OTEL_EXPORTER_OTLP_TIMEOUT: '500',
    OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: '700',
    OTEL_EXPORTER_OTLP_COMPRESSION: 'gzip',
    OTEL_EXPORTER_OTLP_CERTIFICATE: '/ca.pem',
    OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: '/own.pem',
    OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY: '/own.key',
    OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
    OTEL_TRACES_SAMPLER_ARG: '0.25',
    OTEL_BSP_MAX_QUEUE_SIZE: '10',
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '5',
    OTEL_BSP_SCHEDULE_DELAY: '20',
    OTEL_SERVICE_NAME: 'proxy',
    OTEL_RESOURCE_ATTRIBUTES: 'service.name=other,deployment.environment=a%2Cb',
  });
  t.deepEqual(found, {
    resource: { 'service.name': 'proxy', 'deployment.environment': 'a,b' },
    traces: {
      url: 'https://[::1]:4318/spans',
      headers: { authorization: 'Bearer two', 'x-tenant': 'mesh' },
      timeoutMs: 700,
      gzip: true,
      caFile: '/ca.pem',
      certificateFile: '/own.pem',
      keyFile: '/own.key',
      queue: { maxItems: 10, batchItems: 5, delayMs: 20 },
      share: 0.25,
    },
    metrics: null,
    logs: null,
  });
});

test('samplers', (t) => {
  const share = (sampler: string, argument?: string): number | undefined =>
    settings({
      ...ENDPOINT,
      OTEL_TRACES_SAMPLER: sampler,
      ...(argument === undefined ? {} : { OTEL_TRACES_SAMPLER_ARG: argument }),
    })?.traces?.share;
  t.is(share('always_on'), 1);
  t.is(share('parentbased_always_off', '1'), 0);
  t.is(share('traceidratio'), 1);
  t.is(share('traceidratio', '0'), 0);
});

test('every bad setting is named with its reason, and no secret is shown', (t) => {
  const cases: readonly (readonly [environment: Record<string, string>, said: RegExp])[] = [
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'collector:4318' }, /ENDPOINT must be a URL such as/],
    [{ OTEL_EXPORTER_OTLP_LOGS_ENDPOINT: 'grpc://x' }, /LOGS_ENDPOINT must be a URL such as/],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://me:hunter2@x' }, /ENDPOINT must not hold credentials/],
    [{ ...ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS: 'hunter2' }, /HEADERS must be name=value/],
    [{ ...ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS: 'a=%E0hunter2' }, /HEADERS must be name=value/],
    [{ ...ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS: 'a=hunter2%0Ax' }, /HEADERS holds something that/],
    [{ ...ENDPOINT, OTEL_EXPORTER_OTLP_LOGS_HEADERS: 'host=hunter2' }, /must not set host/],
    [{ ...ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }, /PROTOCOL must be http\/protobuf/],
    [{ ...ENDPOINT, OTEL_EXPORTER_OTLP_LOGS_COMPRESSION: 'br' }, /LOGS_COMPRESSION must be gzip/],
    [
      { ...ENDPOINT, OTEL_EXPORTER_OTLP_CLIENT_KEY: '/k' },
      /CLIENT_KEY needs OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE too/,
    ],
    [{ ...ENDPOINT, OTEL_EXPORTER_OTLP_TIMEOUT: '10s' }, /TIMEOUT must be a whole number/],
    [{ ...ENDPOINT, OTEL_METRIC_EXPORT_INTERVAL: '0' }, /INTERVAL must be a whole number/],
    [{ ...ENDPOINT, OTEL_TRACES_SAMPLER: 'jaeger_remote' }, /SAMPLER must be one of/],
    [
      { ...ENDPOINT, OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: '2' },
      /SAMPLER_ARG must be a share/,
    ],
    [{ ...ENDPOINT, OTEL_BLRP_MAX_QUEUE_SIZE: '10' }, /BATCH_SIZE must be at most/],
    [{ ...ENDPOINT, OTEL_SDK_DISABLED: 'maybe' }, /SDK_DISABLED must be true or false/],
    [{ ...ENDPOINT, OTEL_RESOURCE_ATTRIBUTES: '=x' }, /RESOURCE_ATTRIBUTES must be name=value/],
  ];
  for (const [environment, said] of cases) {
    const text = problem(environment);
    t.regex(text, said);
    t.false(text.includes('hunter2'), text);
    t.is(text.split('; ').length, 1, `${text} is said once`);
  }
});
