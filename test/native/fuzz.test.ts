/**
 * Fuzzes the carry for half a minute altogether, from the committed corpora and always in the same way, so that a failure is one of the
 * sources and not of luck. `FUZZ_SECONDS=3600` looks for new inputs, for so long each.
 */
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { processEnvironment } from '../../lib/config/env.ts';
import { FUZZERS } from './support/build.ts';
import { buildOrReason } from './support/program.ts';
import { runProgram } from './support/run-program.ts';

const TARGETS = ['records', 'frames', 'flow', 'mailbox'] as const;
const asked = processEnvironment()['FUZZ_SECONDS'];
/** Seconds for each target. */
const SECONDS = Number(asked ?? 7);
const LARGEST_INPUT_BYTES = 4_096;
const MEMORY_MB = 2_048;
const START_MS = 60_000;
const corpora = new URL('corpora/', import.meta.url).pathname;

// Build all first: AVA declares tests synchronously.
const programs: (readonly [string, Awaited<ReturnType<typeof buildOrReason>>])[] = [];
for (const target of TARGETS) {
  programs.push([target, await buildOrReason(FUZZERS, `${target}.fuzz.cc`)]);
}

for (const [target, program] of programs) {
  if ('reason' in program) process.stdout.write(`${program.reason}\n`);
  const declare = 'reason' in program ? test.serial.skip : test.serial;
  declare(`fuzz: ${target}`, async (t) => {
    if ('reason' in program) return;
    const found = await mkdtemp(join(tmpdir(), 'weft-fuzz-'));
    t.teardown(() => rm(found, { recursive: true }));
    const corpus = join(corpora, target);
    t.true((await readdir(corpus)).length > 0);
    const inputs = join(found, 'corpus');
    await mkdir(inputs);
    const { code, lines } = await runProgram(
      program.path,
      [
        `-max_total_time=${SECONDS}`,
        ...(asked === undefined ? ['-seed=1'] : []),
        `-max_len=${LARGEST_INPUT_BYTES}`,
        `-rss_limit_mb=${MEMORY_MB}`,
        `-artifact_prefix=${found}/`,
        '-print_final_stats=1',
        '-timeout=20',
        inputs,
        corpus,
      ],
      SECONDS * 1_000 + START_MS,
    );
    const executions = lines.find((line) => line.startsWith('stat::number_of_executed_units'));
    t.is(code, 0, lines.slice(-80).join('\n'));
    t.truthy(executions);
    t.log(`${target}: ${executions?.split(':').at(-1)?.trim()} executions`);
  });
}
