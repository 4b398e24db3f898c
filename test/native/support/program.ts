/** Declares the tests of a C++ program as tests of AVA. */
import test from 'ava';
import { TooSlow, build, missing } from './build.ts';
import type { Flavour } from './build.ts';
import { runProgram } from './run-program.ts';

/** Many times what one takes alone: other tests run beside it. */
const LIMIT_MS = 200_000;

/** Builds a program, or says why this machine has none. */
export async function buildOrReason(
  flavour: Flavour,
  source: string,
): Promise<{ readonly path: string } | { readonly reason: string }> {
  const reason = await missing(flavour);
  if (reason !== null) return { reason };
  try {
    return { path: await build(flavour, source) };
  } catch (error) {
    if (error instanceof TooSlow) return { reason: error.message };
    throw error;
  }
}

/** Builds and runs a program first, since AVA declares tests synchronously; each of its tests becomes one here. */
export async function declareTests(flavour: Flavour, source: string): Promise<void> {
  const name = source.replace(/\.test\.cc$/, '');
  const program = await buildOrReason(flavour, source);
  if ('reason' in program) {
    process.stdout.write(`${program.reason}\n`);
    test.skip(`${name} under ${flavour.name}`, () => {});
    return;
  }
  const { code, lines } = await runProgram(program.path, [], LIMIT_MS);
  let said: string[] = [];
  for (const line of lines) {
    const found = /^(ok|not ok) (.*)$/.exec(line);
    if (found === null) {
      said.push(line);
      continue;
    }
    const why = said.join('\n');
    said = [];
    test(`${name}: ${found[2]}`, (t) => (found[1] === 'ok' ? t.pass() : t.fail(why)));
  }
  // A sanitizer ends the program with a report.
  test(`${name}: the program ends well under ${flavour.name}`, (t) => {
    t.is(code, 0, lines.slice(-60).join('\n'));
  });
}
