/** Declares the tests of a C++ program as tests of AVA. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import test from 'ava';
import { TooSlow, build, missing } from './build.ts';
import type { Flavour } from './build.ts';

/** The end of a program and what it said. */
export interface Outcome {
  readonly code: number | null;
  readonly lines: readonly string[];
}

/** Runs a program to its end; it is killed after `timeoutMs`. */
export async function runProgram(
  path: string,
  args: readonly string[],
  timeoutMs: number,
): Promise<Outcome> {
  const child = spawn(path, [...args], { stdio: ['ignore', 'pipe', 'pipe'], timeout: timeoutMs });
  const lines: string[] = [];
  const read = [child.stdout, child.stderr].map((input) =>
    once(
      createInterface({ input }).on('line', (line) => lines.push(line)),
      'close',
    ),
  );
  const [code] = (await once(child, 'exit')) as [number | null];
  await Promise.all(read);
  return { code, lines };
}

const LIMIT_MS = 100_000;

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
