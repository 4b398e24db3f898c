import test from 'ava';
import {
  MAX_LOG_TARGETS,
  extendLogFilter,
  formatLogFilter,
  levelFor,
  parseLogFilter,
} from '../../../../lib/log/log-filter.ts';
import { createLogger, loggerState, setLogFilter } from '../../../../lib/log/logger.ts';
import { plainLine } from '../../../../lib/log/plain-format.ts';

// spec: observability.md §3
test('a filter is a list of levels and target=level, the later and the more specific first', (t) => {
  const filter = parseLogFilter('info, access=debug,ztunnel::policy=OFF,policy.decision=trace');
  t.is(levelFor(filter, 'access'), 'debug');
  t.is(levelFor(filter, 'policy'), 'off');
  t.is(levelFor(filter, 'pod'), 'info');
  t.is(formatLogFilter(filter), 'policy.decision=trace,access=debug,ztunnel::policy=off,info');
  t.deepEqual(parseLogFilter(formatLogFilter(filter)), filter);
  const later = extendLogFilter(filter, 'warn,access=error');
  t.is(levelFor(later, 'access'), 'error');
  t.is(levelFor(later, 'pod'), 'warn');
});

test("upstream's program name stands for all lines but those it keeps apart", (t) => {
  const filter = parseLogFilter('info,ztunnel=debug');
  t.is(levelFor(filter, 'thread'), 'debug');
  t.is(levelFor(filter, 'access'), 'info');
});

test('naming one target silences no errors of the others', (t) => {
  t.is(levelFor(parseLogFilter('access=debug'), 'pod'), 'error');
});

// spec: observability.md §4
test('what is no filter is refused with its place', (t) => {
  for (const text of ['', 'loud', 'access:debug', 'access=', '=info', 'info,,warn', 'a b=info']) {
    t.throws(() => parseLogFilter(text), { message: /neither a level/ }, text);
  }
});

test('a filter names only so many targets', (t) => {
  const targets = Array.from({ length: MAX_LOG_TARGETS }, (_, index) => `t${index}=info`);
  const filter = parseLogFilter(targets.join(','));
  t.is(filter.targets.length, MAX_LOG_TARGETS);
  t.notThrows(() => extendLogFilter(filter, 't0=debug'));
  t.throws(() => extendLogFilter(filter, 'more=debug'), { message: /at most/ });
});

function capture(level: string, format: 'json' | 'plain' = 'json') {
  const lines: string[] = [];
  const log = createLogger(
    { actor: 'node-proxy', level, format },
    { write: (line) => lines.push(line) },
  );
  return { log, lines };
}

test('lines are let through by their target, and the filter changes at run time', (t) => {
  const { log, lines } = capture('info,policy=debug');
  log.debug({ policy: 'a/b' }, 'policy.decision');
  log.debug('thread.ready');
  log.info('thread.lost');
  t.deepEqual(
    lines.map((line) => (JSON.parse(line) as { scope: string }).scope),
    ['policy', 'thread'],
  );
  setLogFilter(log, 'off,access=info');
  t.is(loggerState(log).filter, 'access=info,off');
  log.error('thread.lost');
  log.info({ scope: 'access' }, 'connection complete');
  t.is(lines.length, 3);
  t.throws(() => setLogFilter(log, 'loud'));
  t.is(loggerState(log).filter, 'access=info,off');
});

// spec: observability.md §3
test('a JSON line begins with level and time and names its scope', (t) => {
  const { log, lines } = capture('info');
  log.info({ podUid: 'u' }, 'pod.ready');
  const line = JSON.parse(lines[0] ?? '') as Record<string, unknown>;
  t.deepEqual(Object.keys(line), ['level', 'time', 'actor', 'scope', 'podUid', 'message']);
  t.is(line['scope'], 'pod');
});

// spec: observability.md §3
test('a plain line has tabs, microseconds, quoted texts and bare addresses', (t) => {
  const { log, lines } = capture('info', 'plain');
  log.info(
    {
      scope: 'access',
      'src.addr': '10.0.0.1:40000',
      'src.workload': 'client',
      'dst.hbone_addr': '[fd00::1]:80',
      bytes_sent: 5,
      duration: '3ms',
    },
    'connection complete',
  );
  log.info({ inbound: { id: 'ab', peer: '10.0.0.9' }, policy: 'a/b' }, 'policy.decision');
  t.regex(
    lines[0] ?? '',
    /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\tinfo\taccess\tconnection complete\tsrc\.addr=10\.0\.0\.1:40000 src\.workload="client" dst\.hbone_addr=\[fd00::1\]:80 bytes_sent=5 duration="3ms"\n$/,
  );
  t.regex(
    lines[1] ?? '',
    /\tpolicy:inbound\{id=ab peer=10\.0\.0\.9\}\tpolicy\.decision\tpolicy="a\/b"\n$/,
  );
});

test('what a peer said begins no plain line of its own', (t) => {
  const line = plainLine(
    JSON.stringify({
      level: 'warn',
      message: 'x\ny',
      'dst.hbone_addr': 'evil"\n2026\tinfo',
      error: 'a\nb',
    }),
  );
  t.is(line.split('\n').length, 2);
  t.is(plainLine('not json\n'), 'not json\n');
});
