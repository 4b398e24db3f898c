/**
 * Fuzzes the plugin for some seconds, from the committed corpus and always in the same way. `FUZZ_SECONDS=3600` looks for new
 * inputs, for so long.
 */
import { execFile, execFileSync } from 'node:child_process';
import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { processEnvironment } from '../../lib/config/env.ts';
import { makeScratch } from '../support/leftovers.ts';

const run = promisify(execFile);
const SOURCES = new URL('../../services/node-agent/cni/plugin/', import.meta.url).pathname;
const TARGET = new URL('plugin.fuzz.cc', import.meta.url).pathname;
const CORPUS = new URL('corpus/', import.meta.url).pathname;
const COMPILER = 'clang++';
const asked = processEnvironment()['FUZZ_SECONDS'];
const SECONDS = Number(asked ?? 5);

function unavailable(): string | null {
  try {
    execFileSync(COMPILER, ['--version'], { stdio: 'pipe' });
    return null;
  } catch {
    return `${COMPILER} is missing: run sh infra/setup.sh --native`;
  }
}

const missing = unavailable();
if (missing !== null) process.stdout.write(`SKIPPED cni: ${missing}\n`);
const declare = missing === null ? test.serial : test.serial.skip;

declare('fuzz: no input breaks the plugin', async (t) => {
  const dir = await makeScratch('cni-fuzz');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const program = join(dir, 'fuzz');
  const files = (await readdir(SOURCES)).filter(
    (name) => name.endsWith('.cc') && name !== 'main.cc',
  );
  await run(COMPILER, [
    '-std=c++20',
    '-g',
    '-O1',
    '-fsanitize=fuzzer,address,undefined',
    '-fno-sanitize-recover=undefined',
    `-I${SOURCES}`,
    '-o',
    program,
    TARGET,
    ...files.map((name) => join(SOURCES, name)),
  ]);
  const found = join(dir, 'corpus');
  await mkdir(found);
  const { stderr } = await run(
    program,
    [
      `-max_total_time=${SECONDS}`,
      ...(asked === undefined ? ['-seed=1'] : []),
      '-max_len=4096',
      '-timeout=20',
      `-artifact_prefix=${dir}/`,
      '-print_final_stats=1',
      found,
      CORPUS,
    ],
    { maxBuffer: 64 * 1024 * 1024 },
  );
  const executed = /stat::number_of_executed_units:\s*(\d+)/.exec(stderr)?.[1];
  t.log(`${executed} executions`);
  t.true(Number(executed) > 0);
});
