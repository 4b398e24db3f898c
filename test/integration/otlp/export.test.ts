/** Tests the export of an actor's process to collectors of every kind. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { ServerOptions } from 'node:https';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { bareEnvironment } from '../../support/bare-environment.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { OtlpReceiver } from '../../support/otlp-receiver.ts';
import { createTunnelPki } from '../../support/tunnel-pki.ts';
import { until } from '../../support/until.ts';

const fixture = new URL('../../support/host-fixture.ts', import.meta.url).pathname;
const recorder = new URL('../../support/record-modules.ts', import.meta.url).pathname;
const SECRET = 'hunter2';

interface Host {
  output(): string;
  lines(event: string): Record<string, unknown>[];
  /** Sends SIGTERM; resolves with the exit status. */
  end(): Promise<number | null>;
  readonly exit: Promise<number | null>;
}

function start(
  t: ExecutionContext,
  environment: Record<string, string>,
  flags: readonly string[] = [],
): Host {
  const child = spawn(process.execPath, [...flags, fixture], {
    env: bareEnvironment({ NODE_NAME: 'n1', ...environment }),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
  }
  const exit = once(child, 'close').then(([code]) => code as number | null);
  t.teardown(async () => {
    child.kill('SIGKILL');
    await exit;
    if (!t.passed) t.log(output);
  });
  return {
    exit,
    output: () => output,
    lines: (event) =>
      output
        .split('\n')
        .filter((line) => line.includes(`"${event}"`))
        .map((line) => JSON.parse(line) as Record<string, unknown>),
    async end() {
      await until(() => output.includes('"actor.started"'), {
        what: 'the actor',
        timeoutMs: 30_000,
      });
      child.kill('SIGTERM');
      return exit;
    },
  };
}

async function scratch(t: ExecutionContext): Promise<string> {
  const directory = await makeScratch('otlp');
  t.teardown(() => rm(directory, { recursive: true }));
  return directory;
}

async function serverTls(directory: string): Promise<ServerOptions> {
  const pki = await createTunnelPki();
  await writeFile(join(directory, 'root.pem'), pki.rootPem);
  return pki.issueLocal();
}

test('without an endpoint no module of the SDK is loaded, with one it is', async (t) => {
  const directory = await scratch(t);
  const record = async (name: string, environment: Record<string, string>): Promise<string[]> => {
    const file = join(directory, name);
    const host = start(t, { RECORD_MODULES: file, ...environment }, ['--import', recorder]);
    t.is(await host.end(), 0);
    const all = JSON.parse(await readFile(file, 'utf8')) as string[];
    // prom-client depends on the OpenTelemetry API, for exemplars.
    return all.filter(
      (module) => module.startsWith('@opentelemetry/') && module !== '@opentelemetry/api',
    );
  };
  t.deepEqual(await record('off', { OTEL_SERVICE_NAME: 'x' }), []);
  const receiver = await OtlpReceiver.start(t);
  const loaded = await record('on', { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url });
  t.true(loaded.includes('@opentelemetry/exporter-metrics-otlp-proto'), loaded.join(' '));
});

test('metrics of the process and its actor go to the collector, the last ones at the end', async (t) => {
  const receiver = await OtlpReceiver.start(t);
  const host = start(t, {
    OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: `${receiver.url}/v1/metrics`,
    OTEL_EXPORTER_OTLP_HEADERS: `authorization=Bearer%20${SECRET}`,
    OTEL_EXPORTER_OTLP_COMPRESSION: 'gzip',
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment=test',
  });
  t.is(await host.end(), 0);
  const [request, ...further] = receiver.requests;
  t.deepEqual(further, [], 'the interval is a minute: the one at the end');
  t.like(request?.headers, {
    authorization: `Bearer ${SECRET}`,
    'content-encoding': 'gzip',
    'content-type': 'application/x-protobuf',
  });
  t.like(receiver.metric('process_cpu_seconds_total'), {
    kind: 'sum',
    scope: 'weft/process',
    attributes: {},
  });
  t.like(receiver.metric('process_cpu_seconds_total')?.resource, {
    'service.name': 'weft-fixture',
    'k8s.node.name': 'n1',
    'deployment.environment': 'test',
  });
  t.false(host.output().includes(SECRET));
});

test('a collector with TLS is verified against the roots that are named', async (t) => {
  const directory = await scratch(t);
  const receiver = await OtlpReceiver.start(t, { port: 0 }, await serverTls(directory));
  const environment = {
    OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: `${receiver.url}/v1/metrics?key=${SECRET}`,
  };
  const trusting = start(t, {
    ...environment,
    OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE: join(directory, 'root.pem'),
  });
  t.is(await trusting.end(), 0);
  t.is(receiver.requests.length, 1);
  t.truthy(receiver.metric('process_cpu_seconds_total'));

  const strict = start(t, { ...environment, OTEL_METRIC_EXPORT_INTERVAL: '50' });
  await until(() => strict.lines('otlp.export-failed').length > 0, {
    what: 'the refusal',
    timeoutMs: 30_000,
  });
  t.is(await strict.end(), 0);
  t.is(receiver.requests.length, 1, 'nothing is sent to a server that nobody vouches for');
  t.false(strict.output().includes(SECRET));
});

test('a collector that answers nothing, or is not there, does not hold up the end', async (t) => {
  const silent = await OtlpReceiver.start(t);
  silent.answer = 'hang';
  const free = createServer().listen(0, '127.0.0.1');
  await once(free, 'listening');
  const { port } = free.address() as AddressInfo;
  await new Promise((resolve) => free.close(resolve));
  for (const url of [silent.url, `http://127.0.0.1:${port}`]) {
    const host = start(t, {
      OTEL_EXPORTER_OTLP_ENDPOINT: url,
      OTEL_EXPORTER_OTLP_TIMEOUT: '86400000',
      OTEL_METRIC_EXPORT_INTERVAL: '50',
    });
    t.is(await host.end(), 0, url);
    t.deepEqual(host.lines('host.leftover-handles'), []);
  }
});

test('a collector that refuses is told of once, with its status', async (t) => {
  const receiver = await OtlpReceiver.start(t);
  receiver.answer = 401;
  const host = start(t, {
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
    OTEL_METRIC_EXPORT_INTERVAL: '50',
  });
  await until(() => receiver.requests.length > 2, { what: 'attempts', timeoutMs: 30_000 });
  t.is(await host.end(), 0);
  t.like(host.lines('otlp.export-failed'), [
    { signal: 'metrics', kind: 'refused', error: 'HTTP 401 Unauthorized' },
  ]);
  t.is(host.lines('otlp.export-failed').length, 1);
});

test('bad settings end the process with 78, named, and no secret is shown', async (t) => {
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318' };
  const bad = start(t, {
    ...endpoint,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
    OTEL_EXPORTER_OTLP_HEADERS: `authorization:${SECRET}`,
  });
  t.is(await bad.exit, 78);
  t.regex(bad.output(), /OTEL_EXPORTER_OTLP_PROTOCOL must be http\/protobuf/);
  t.regex(bad.output(), /OTEL_EXPORTER_OTLP_HEADERS must be name=value/);
  t.false(bad.output().includes(SECRET));

  const absent = start(t, { ...endpoint, OTEL_EXPORTER_OTLP_CERTIFICATE: '/nowhere/ca.pem' });
  t.is(await absent.exit, 78);
  t.regex(absent.output(), /CERTIFICATE: ENOENT.*\/nowhere\/ca\.pem/);

  const empty = start(t, { ...endpoint, OTEL_EXPORTER_OTLP_CERTIFICATE: fixture });
  t.is(await empty.exit, 78);
  t.regex(empty.output(), /holds no PEM/);
});
