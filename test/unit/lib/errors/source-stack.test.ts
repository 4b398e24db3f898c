import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import test from 'ava';
import { build } from 'esbuild';
import { sourceStack } from '../../../../lib/errors/source-stack.ts';

test('the stack of a built program names its sources', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'weft-stack-'));
  t.teardown(() => rm(folder, { recursive: true }));
  const source = join(folder, 'thrower.ts');
  const lines = [
    'try {',
    "  throw new Error('here');",
    '} catch (error) {',
    '  console.log((error as Error).stack);',
    '}',
  ];
  await writeFile(source, lines.join('\n'));
  await writeFile(join(folder, 'package.json'), '{"type":"module"}');
  const outfile = join(folder, 'out', 'thrower.js');
  await build({ entryPoints: [source], outfile, format: 'esm', minify: true, sourcemap: 'linked' });
  // A process of its own, as the one of the tests maps stacks by itself.
  const { stdout } = await promisify(execFile)(process.execPath, [outfile]);
  const error = Object.assign(new Error('here'), { stack: stdout });
  t.true(stdout.includes('thrower.js:1:'), stdout);
  const stack = sourceStack(error);
  t.true(stack?.includes(`${pathToFileURL(source).href}:2:9`), stack);
  await rm(`${outfile}.map`);
  t.true(sourceStack(error)?.includes('thrower.js:1:'));
});

test('a value that is no error has no stack', (t) => {
  t.is(sourceStack('no error'), undefined);
});
