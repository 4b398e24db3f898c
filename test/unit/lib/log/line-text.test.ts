import test from 'ava';
import * as fc from 'fast-check';
import { AccessLog, accessFields } from '../../../../lib/log/access-log.ts';
import type { AccessFacts } from '../../../../lib/log/access-log.ts';
import { isoTime } from '../../../../lib/log/line-text.ts';
import { createLogger } from '../../../../lib/log/logger.ts';
import type { LogFormat, LoggerOptions } from '../../../../lib/log/logger.ts';

const text = fc.oneof(fc.string(), fc.string({ unit: 'binary' }), fc.constant('10.0.0.1:80'));
const maybe = fc.option(text);
const party = fc.record({
  address: text,
  workload: maybe,
  namespace: maybe,
  identity: maybe,
  cluster: maybe,
});
const facts: fc.Arbitrary<AccessFacts> = fc.record({
  source: party,
  destination: party,
  hboneAddress: maybe,
  serviceHostname: maybe,
  direction: fc.constantFrom('inbound', 'outbound'),
  traceId: maybe,
  path: maybe,
});
const end = fc.record({
  bytesSent: fc.nat(),
  bytesReceived: fc.maxSafeNat(),
  durationMs: fc.double({ min: 0, max: 1e9, noNaN: true }),
  error: fc.constant(null),
});
const who: fc.Arbitrary<LoggerOptions> = fc.record(
  { actor: text, node: maybe, worker: fc.nat() },
  { requiredKeys: ['actor'] },
);

/** Collects a logger's lines without their time. */
function lines(options: LoggerOptions, format: LogFormat) {
  const found: string[] = [];
  const timeless = /\d{4}-\d\d-\d\dT[\d:.]+Z/;
  const log = createLogger(
    { ...options, format },
    { write: (line) => found.push(line.replace(timeless, 'T')) },
  );
  return { log, found };
}

// spec: observability.md §3.1
test('a line that is put together is the one the logger makes of the same fields', (t) => {
  for (const format of ['json', 'plain'] as const) {
    fc.assert(
      fc.property(who, facts, end, (options, connection, ended) => {
        const { log, found } = lines(options, format);
        const access = new AccessLog(log);
        access.complete(connection, ended);
        // The texts of its labels are known by now.
        access.complete(connection, ended);
        log.info(accessFields(connection, ended), 'connection complete');
        return found.length === 3 && found[0] === found[2] && found[1] === found[2];
      }),
      { numRuns: 300 },
    );
  }
  t.pass();
});

test('a level or target that is off writes no line of a success', (t) => {
  for (const [level, written] of [
    ['info', 1],
    ['warn', 0],
    ['error,access=info', 1],
    ['info,access=off', 0],
  ] as const) {
    const { log, found } = lines({ actor: 'a', level }, 'json');
    const [connection] = fc.sample(facts, { numRuns: 1, seed: 1 });
    const [ended] = fc.sample(end, { numRuns: 1, seed: 1 });
    if (connection === undefined || ended === undefined) throw new Error('no sample');
    new AccessLog(log).complete(connection, ended);
    t.is(found.length, written, level);
  }
});

test('the time is that of Date, whatever came before', (t) => {
  const times = fc.integer({ min: 0, max: 4_102_444_800_000 });
  fc.assert(
    fc.property(times, fc.nat(2_000), (first, later) =>
      [first, first + later, first].every((at) => isoTime(at) === new Date(at).toISOString()),
    ),
  );
  t.pass();
});
