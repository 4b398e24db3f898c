/** Tests the totals of continuous integration and its treatment of broken tiers, with commands in place of npm. */
import { execFile } from 'node:child_process';
import { chmod, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { processEnvironment } from '../../lib/config/env.ts';
import { makeScratch } from '../support/leftovers.ts';

const SCRIPT = new URL('../../.ci/run', import.meta.url).pathname;

interface Ended {
  readonly code: number;
  readonly lines: readonly string[];
}

/** Runs `.ci/run`, or `script` in its place, in a project whose tests are these shell commands. */
async function ciRun(
  t: ExecutionContext,
  tiers: { readonly test: string; readonly interop?: string },
  script?: string,
): Promise<Ended> {
  const root = await makeScratch('ci');
  t.teardown(() => rm(root, { recursive: true }));
  await mkdir(join(root, '.ci'));
  await mkdir(join(root, 'bin'));
  await writeFile(join(root, '.ci/run'), script ?? (await readFile(SCRIPT)));
  const scripts = { test: '', ...(tiers.interop === undefined ? {} : { 'test:interop': '' }) };
  await writeFile(join(root, 'package.json'), JSON.stringify({ scripts }, null, 2));
  const npm = `#!/bin/sh\nif [ "$1" = test ]; then\n${tiers.test}\nelse\n${tiers.interop ?? ''}\nfi\n`;
  await writeFile(join(root, 'bin/npm'), npm);
  await chmod(join(root, 'bin/npm'), 0o755);
  const { PATH = '' } = processEnvironment();
  const env = { PATH: `${join(root, 'bin')}${delimiter}${PATH}` };
  return new Promise((resolve) => {
    execFile('bash', [join(root, '.ci/run')], { env }, (error, stdout) => {
      const code = error === null ? 0 : Number(error.code);
      resolve({ code, lines: stdout.trimEnd().split('\n') });
    });
  });
}

test('the counts of the tiers are added up in the last line', async (t) => {
  const { code, lines } = await ciRun(t, {
    test: 'echo "unit: 3 passed, 0 failed, 0 skipped in 1 s"; echo "5 passed, 0 failed, 1 skipped"',
    interop: 'echo "10 passed, 0 failed, 2 skipped"',
  });
  t.is(lines.at(-1), '15 passed, 0 failed, 3 skipped');
  t.is(code, 0);
});

for (const [what, command, total, reason] of [
  ['fails', 'echo "5 passed, 10 failed, 0 skipped"; exit 1', '12 passed, 10 failed', /status 1$/],
  [
    'ends badly after its count',
    'echo "5 passed, 0 failed"; exit 3',
    '12 passed, 1 failed',
    /status 3$/,
  ],
  ['breaks before its count', 'echo oh; exit 2', '7 passed, 1 failed', /told no count/],
  ['tells no count', 'echo "all is well"', '7 passed, 1 failed', /told no count/],
  [
    'is ended by its limit',
    'echo oh; exit 124',
    '7 passed, 1 failed',
    /exceeded its limit of \d+s/,
  ],
  ['has to be killed', 'echo oh; exit 137', '7 passed, 1 failed', /exceeded its limit of \d+s/],
] as const) {
  test(`a tier that ${what} is a failure with a reason, and the others still run`, async (t) => {
    const { code, lines } = await ciRun(t, {
      test: command,
      interop: 'echo "7 passed, 0 failed, 0 skipped"',
    });
    t.is(lines.at(-1), `${total}, 0 skipped`);
    t.is(code, 1);
    t.true(
      lines.some((line) => line.startsWith('== test ') && reason.test(line)),
      lines.join('\n'),
    );
  });
}

test('a tier whose build did not fit is skipped, and says what is missing', async (t) => {
  const { code, lines } = await ciRun(t, {
    test: 'echo "5 passed, 0 failed, 0 skipped"',
    interop: 'echo "SKIPPED interop: istio is not built within 60 s"',
  });
  t.is(lines.at(-1), '5 passed, 0 failed, 1 skipped');
  t.is(code, 0);
  t.true(lines.includes('SKIPPED interop: istio is not built within 60 s'));
});

test('a tier that says what is missing and breaks is a failure', async (t) => {
  const { code, lines } = await ciRun(t, {
    test: 'echo "5 passed, 0 failed, 0 skipped"',
    interop: 'echo "SKIPPED interop: istio is not built"; exit 1',
  });
  t.is(lines.at(-1), '5 passed, 1 failed, 0 skipped');
  t.is(code, 1);
});

test('tiers have no more time than what is left of seventy minutes', async (t) => {
  const script = await readFile(SCRIPT, 'utf8');
  t.regex(script, /^readonly total=4200$/m);
  const { code, lines } = await ciRun(
    t,
    { test: 'exec sleep 600', interop: 'exec sleep 600' },
    script.replace('total=4200', 'total=2'),
  );
  // On a busy machine the first second may be over before the first tier.
  t.true(
    lines.some((line) => /^== test exceeded its limit of [12]s$/.test(line)),
    lines.join('\n'),
  );
  t.true(lines.includes('== test:interop exceeded its limit of 1s'), lines.join('\n'));
  t.is(lines.at(-1), '0 passed, 2 failed, 0 skipped');
  t.is(code, 1);
});

test('what failed is repeated at the end', async (t) => {
  const failure = ['not ok 2 - a name', '  ---', '    message: why', '  ...'];
  const said = ['== unit', ...failure, 'SKIPPED ok 3 - other', 'unit: 1 passed, 1 failed'];
  const { lines } = await ciRun(t, {
    test: `printf '%s\\n' ${said.map((line) => `'${line}'`).join(' ')}; echo '1 passed, 1 failed'; exit 1`,
    interop: 'echo "compiler: no such file"; exit 2',
  });
  t.deepEqual(lines.slice(lines.indexOf('== what failed')), [
    '== what failed',
    '== test',
    ...failure,
    '== test:interop',
    'compiler: no such file',
    '1 passed, 2 failed, 0 skipped',
  ]);
});
