import test from 'ava';
import { commandName, commands } from '../../../../services/cli/command-table.ts';
import { parseConfigFile } from '../../../../services/cli/config-file.ts';
import { chooseLogs } from '../../../../services/cli/log-choice.ts';
import { readInput } from '../../../../services/cli/manifest-command.ts';
import { parseDestination, parsePod } from '../../../../services/cli/references.ts';
import { UsageError } from '../../../../lib/errors/usage-error.ts';

test('pods and destinations are read', (t) => {
  t.deepEqual(parsePod('--from', 'demo/web-1'), { namespace: 'demo', name: 'web-1' });
  t.deepEqual(parseDestination('--to', 'demo/api:80'), {
    namespace: 'demo',
    name: 'api',
    port: 80,
  });
});

for (const text of ['', 'web', '/web', 'demo/', 'demo/a/b', 'Demo/web', 'demo/we b', '../etc']) {
  test(`${JSON.stringify(text)} names no pod`, (t) => {
    const error = t.throws(() => parsePod('the pod', text), { instanceOf: UsageError });
    t.true(error.message.includes('<namespace>/<pod>'));
  });
}

for (const text of ['demo/api', 'demo/api:', 'demo/api:0', 'demo/api:65536', 'api:80', 'a/b/c:1']) {
  test(`${JSON.stringify(text)} is no destination`, (t) => {
    const error = t.throws(() => parseDestination('--to', text), { instanceOf: UsageError });
    t.true(error.message.startsWith('--to must be'));
  });
}

test('the command is found behind the options of the program', (t) => {
  t.is(commandName(['--mesh', 'up', 'get', 'pods']), 'get');
  t.is(commandName(['--mesh=x', 'logs', '-f']), 'logs');
  t.is(commandName(['help', 'exec']), 'exec');
  t.is(commandName(['--help']), null);
  t.is(commandName([]), null);
});

test('every command has one line for the list', (t) => {
  for (const { summary } of Object.values(commands)) t.regex(summary, /^[^\n]{5,90}$/);
});

test('a configuration file gives texts, as the environment does', (t) => {
  const text = 'NODE_NAME: node-1\nPORT: 15001\nENABLED: true\nTTL: 10s\n';
  t.deepEqual(parseConfigFile('f', text, ['NODE_NAME', 'PORT', 'ENABLED', 'TTL']), {
    NODE_NAME: 'node-1',
    PORT: '15001',
    ENABLED: 'true',
    TTL: '10s',
  });
  t.deepEqual(parseConfigFile('f', '{"NODE_NAME": "n"}', ['NODE_NAME']), { NODE_NAME: 'n' });
  t.deepEqual(parseConfigFile('f', '', []), {});
});

test('a configuration file is refused with every problem', (t) => {
  const text = 'NODE_NAME: [a]\nNODE_NAM: x\n';
  const error = t.throws(() => parseConfigFile('my.yaml', text, ['NODE_NAME']), {
    code: 'CONFIG_INVALID',
  });
  t.is(
    error.message,
    'my.yaml: NODE_NAME must be a text, number or truth value; NODE_NAM is no variable of these actors',
  );
});

for (const text of ['- a\n', 'just words', 'A: 1\nA: 2\n', 'A: [', '{"A":']) {
  test(`${JSON.stringify(text)} is no map of variables`, (t) => {
    const error = t.throws(() => parseConfigFile('my.yaml', text, ['A']), {
      code: 'CONFIG_INVALID',
    });
    t.true(error.message.startsWith('my.yaml: '));
    t.false(error.message.includes('\n'));
  });
}

const FILES = [
  'ca.log',
  'ca.log.1',
  'node-proxy.node-1.log',
  'node-proxy.node-2.log',
  'pod.demo.web-1.main.log',
];
const chosen = (wanted: string | undefined): string[] =>
  chooseLogs(FILES, wanted).map(({ process }) => process);

test('logs are chosen by actor, node and actor, or process', (t) => {
  t.deepEqual(chosen(undefined), ['ca', 'node-proxy.node-1', 'node-proxy.node-2']);
  t.deepEqual(chosen('node-proxy'), ['node-proxy.node-1', 'node-proxy.node-2']);
  t.deepEqual(chosen('node-1/node-proxy'), ['node-proxy.node-1']);
  t.deepEqual(chosen('node-proxy.node-2'), ['node-proxy.node-2']);
  t.deepEqual(chosen('pod.demo'), ['pod.demo.web-1.main']);
  for (const wanted of ['nodeproxy', 'node-3/node-proxy', '../ca', 'a/b/c']) {
    t.throws(() => chosen(wanted), { instanceOf: UsageError, message: /there are ca, node-proxy/ });
  }
});

test('standard input has a limit', async (t) => {
  async function* chunks(): AsyncGenerator<Buffer> {
    yield Buffer.from('kind: ');
    yield Buffer.from('Pod\n');
  }
  t.is(await readInput(chunks(), 10), 'kind: Pod\n');
  await t.throwsAsync(readInput(chunks(), 9), { code: 'MANIFEST_INVALID' });
});
