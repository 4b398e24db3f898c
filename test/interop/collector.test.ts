/** Tests that the receiver of the OpenTelemetry Collector reads the exported data. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { createInterface } from 'node:readline';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import { MetricRegistry } from '../../lib/metrics/registry.ts';
import { OtlpExport } from '../../lib/otlp/otlp-export.ts';
import { hostConfig } from '../../lib/actor/host-config.ts';
import { keptLog } from '../support/actor-context.ts';
import { until } from '../support/until.ts';
import { goProgram } from './support/go.ts';

const program = await goProgram('collector');
const trace = { traceId: 'ab'.repeat(16), spanId: 'cd'.repeat(8) };

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Starts the receiver; gives access to its output so far. */
async function startCollector(
  t: ExecutionContext,
  path: string,
): Promise<{ readonly url: string; readonly printed: string[] }> {
  const address = `127.0.0.1:${await freePort()}`;
  const child = spawn(path, [address], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  const printed: string[] = [];
  createInterface({ input: child.stdout }).on('line', (line) => printed.push(line));
  t.teardown(async () => {
    child.stdin.end();
    await ended;
  });
  await until(() => printed.includes('"listening"'), { what: 'the receiver' });
  return { url: `http://${address}`, printed };
}

async function body(t: ExecutionContext, path: string): Promise<void> {
  const { url, printed } = await startCollector(t, path);
  const { otlp } = hostConfig.parse({
    OTEL_EXPORTER_OTLP_ENDPOINT: url,
    OTEL_EXPORTER_OTLP_COMPRESSION: 'gzip',
  });
  if (otlp === null) throw new Error('an endpoint is set');
  const { log, lines } = keptLog('test');
  const deps = { clock: systemClock, log, service: 'weft-test', node: 'node-1' };
  const exports = await OtlpExport.start(otlp, deps);
  const registry = new MetricRegistry();
  registry.counter('istio_tcp_sent_bytes_total', 'Bytes').inc(7);
  registry.histogram('weft_first_byte_seconds', 'Time', [0.1, 1]).observe(0.5);
  exports.addMetrics('test', () => registry.families());
  exports.add(
    [
      {
        fields: {
          scope: 'access',
          'src.workload': 'client',
          bytes_sent: 5,
          trace_id: trace.traceId,
        },
        severity: 'info',
        message: 'connection complete',
        endedAtMs: 2_000,
        log: true,
        span: {
          startedAtMs: 1_000,
          direction: 'inbound',
          trace,
          name: 'web:80',
          protocol: 'HBONE',
          responseFlag: '-',
          tunnel: null,
          steps: [['connected', 2]],
        },
      },
    ],
    { logs: 0, traces: 0 },
  );
  await exports.lastMetrics();
  t.true(await exports.close());
  await until(() => printed.length >= 4, { what: 'three requests' });
  const all = printed.join('\n');
  for (const said of [
    `"traceId":"${trace.traceId}"`,
    `"parentSpanId":"${trace.spanId}"`,
    '"name":"web:80","kind":2',
    '"startTimeUnixNano":"1000000000","endTimeUnixNano":"2000000000"',
    '{"key":"service.name","value":{"stringValue":"weft-test"}}',
    '{"key":"bytes_sent","value":{"intValue":"5"}}',
    '"severityText":"INFO","body":{"stringValue":"connection complete"}',
    '"name":"istio_tcp_sent_bytes_total"',
    '"asDouble":7',
    '"bucketCounts":["0","1","0"],"explicitBounds":[0.1,1]',
  ]) {
    t.true(all.includes(said), `${said} in ${all}`);
  }
  t.deepEqual(
    lines.map(({ message }) => message),
    ['otlp.started'],
  );
}

const title = 'the Collector reads traces, metrics and access lines';
if ('missing' in program) {
  process.stderr.write(`\nSKIPPED interop: collector: ${program.missing}\n`);
  test.skip(`${title}: ${program.missing}`, (t) => t.pass());
} else {
  test(title, (t) => body(t, program.path));
}
