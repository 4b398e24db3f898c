/** Tests the `weft` command as a user calls it, without a mesh. */
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { commands } from '../../../services/cli/command-table.ts';
import { lanes } from '../../support/lanes.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { runWeft } from '../../support/run-weft.ts';

const inTurn = lanes(4);

function weft(...args: string[]) {
  return inTurn(() => runWeft(args, { WEFT_MESH: 'nosuchmesh' }));
}

/** One line, no stack. */
const ONE_LINE = /^weft: [^\n]+\n$/;

const HELP_OF_EACH = Object.keys(commands).map((name) => [name, '--help']);

for (const words of [...HELP_OF_EACH, ['help', 'up'], ['help', 'policy']]) {
  test(`weft ${words.join(' ')}`, async (t) => {
    const { code, stdout, stderr } = await weft(...words);
    t.is(code, 0);
    t.is(stderr, '');
    const name = words.find((word) => word !== 'help') ?? '';
    t.true(stdout.startsWith(`Usage: weft ${name}`));
  });
}

test('weft --help lists every command that is not hidden', async (t) => {
  const { stdout } = await weft('--help');
  for (const [name, { hidden }] of Object.entries(commands)) {
    t.is(stdout.includes(`\n  ${name} `), hidden !== true, name);
  }
});

const WRONG: readonly (readonly string[])[] = [
  ['nosuch'],
  ['get'],
  ['get', 'pots'],
  ['get', 'pods', '-o', 'yaml'],
  ['get', 'pods', '--nosuch'],
  ['status', '-o', 'yaml'],
  ['exec'],
  ['exec', 'demo/web'],
  ['exec', 'web', '--', 'true'],
  ['apply'],
  ['delete'],
  ['policy', 'explain', '--from', 'demo/web'],
  ['policy', 'explain', '--from', 'web', '--to', 'demo/api:80'],
  ['policy', 'explain', '--from', 'demo/web', '--to', 'demo/api'],
  ['run'],
  ['run', 'nosuch'],
  ['env'],
  ['up', '--nodes', '0'],
];

for (const words of WRONG) {
  test(`wrong usage: weft ${words.join(' ')}`, async (t) => {
    const { code, stdout, stderr } = await weft(...words);
    t.is(code, 2);
    t.is(stdout, '');
    t.regex(stderr, ONE_LINE);
  });
}

test('without a command, and with half of one, help goes to standard error', async (t) => {
  for (const words of [[], ['policy']]) {
    const { code, stdout, stderr } = await weft(...words);
    t.is(code, 2);
    t.is(stdout, '');
    t.true(stderr.startsWith('Usage: weft'));
  }
});

const NEEDS_MESH: readonly (readonly string[])[] = [
  ['status'],
  ['get', 'pods'],
  ['get', 'queues', '-o', 'json'],
  ['exec', 'demo/web', '--', 'true'],
  ['env', 'node-1/node-proxy'],
  ['logs'],
  ['trace', 'demo/web', 'demo/api:80'],
  ['log-level', 'debug'],
  ['access-log'],
  ['policy', 'explain', '--from', 'demo/web', '--to', 'demo/api:80'],
];

for (const words of NEEDS_MESH) {
  test(`no mesh: weft ${words.join(' ')}`, async (t) => {
    const { code, stdout, stderr } = await weft(...words);
    t.is(code, 1);
    t.is(stdout, '');
    t.regex(stderr, ONE_LINE);
    t.true(stderr.includes('mesh nosuchmesh is not running'));
    t.true(stderr.includes('weft up --mesh nosuchmesh'));
  });
}

test('--mesh is taken before and after the command', async (t) => {
  for (const words of [
    ['--mesh', 'other', 'get', 'pods'],
    ['get', '--mesh', 'other', 'pods'],
    ['get', 'pods', '--mesh=other'],
  ]) {
    const { code, stderr } = await weft(...words);
    t.is(code, 1);
    t.true(stderr.includes('mesh other is not running'));
  }
  const wrong = await weft('--mesh', 'Not-A-Name', 'get', 'pods');
  t.is(wrong.code, 78);
  t.regex(wrong.stderr, ONE_LINE);
});

test('unreadable manifests are refused with their place', async (t) => {
  const folder = await makeScratch('cli');
  t.teardown(() => rm(folder, { recursive: true }));
  const file = join(folder, 'broken.yaml');
  await writeFile(file, 'kind: Pod\n---\nkind: [\n');
  const { code, stderr } = await weft('apply', '-f', file);
  t.is(code, 1);
  t.true(stderr.startsWith(`${file}: document 1: line 4, column 1: `));
  t.true(stderr.endsWith('weft: nothing was changed\n'));
});

test('a wrong configuration ends with 78 and names what is wrong', async (t) => {
  const folder = await makeScratch('cli');
  t.teardown(() => rm(folder, { recursive: true }));
  const file = join(folder, 'config.yaml');
  await writeFile(file, 'REDIS_URL: http://nowhere\n');
  const invalid = await weft('run', 'policy-evaluator', '--config', file);
  t.is(invalid.code, 78);
  t.regex(invalid.stderr, ONE_LINE);
  t.true(invalid.stderr.includes('REDIS_URL'));

  await writeFile(file, 'NO_SUCH: 1\nREDIS_URL: {}\n');
  const unknown = await weft('run', 'policy-evaluator', '--config', file);
  t.is(unknown.code, 78);
  t.true(unknown.stderr.includes(`${file}: NO_SUCH is no variable of these actors; REDIS_URL`));

  const absent = await weft('run', 'policy-evaluator', '--config', join(folder, 'absent'));
  t.is(absent.code, 78);
  t.regex(absent.stderr, ONE_LINE);
});
