/**
 * Disables the checks of mutations.ts one after another, builds the C++ programs with each and runs them until one fails. Prints a
 * table, and ends with 1 when a check could be disabled unseen. Arguments choose checks by a part of their text or file.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ADDRESSES, CORE, build, missing } from './support/build.ts';
import { runProgram } from './support/run-program.ts';
import { MUTATIONS } from './mutations.ts';
import type { Mutation } from './mutations.ts';

/** Programs in the order in which they probably see a change of a file. */
const RECORDS = [
  'records.test.cc',
  'differential.test.cc',
  'frames.test.cc',
  'joins.test.cc',
  'bounds.test.cc',
  'offers.test.cc',
  'faults.test.cc',
];
const FRAMES = [
  'frames.test.cc',
  'faults.test.cc',
  'joins.test.cc',
  'offers.test.cc',
  'bounds.test.cc',
  'records.test.cc',
  'differential.test.cc',
];
const JOINS = [
  'joins.test.cc',
  'offers.test.cc',
  'bounds.test.cc',
  'faults.test.cc',
  'frames.test.cc',
  'records.test.cc',
  'differential.test.cc',
];
/** A check may be one that lets a program go on for ever. */
const LIMIT_MS = 20_000;

function programsFor(file: string): readonly string[] {
  if (file.startsWith('tls-')) return RECORDS;
  return file.startsWith('stream') || file === 'flow.cc' ? JOINS : FRAMES;
}

/** Returns the words of the first failure, null when all programs pass. */
async function failure({ file, from, to }: Mutation, folder: string): Promise<string | null> {
  const text = await readFile(join(CORE, file), 'utf8');
  if (text.split(from).length !== 2) throw new Error(`${file} does not contain once: ${from}`);
  await writeFile(
    join(folder, file),
    text.replace(from, () => to),
  );
  for (const program of programsFor(file)) {
    // A check that the compiler misses as well needs another change.
    const path = await build(ADDRESSES, program, join(folder, file));
    const { code, lines } = await runProgram(path, [], LIMIT_MS);
    if (code === 0) continue;
    const failed = lines.find((line) => line.startsWith('not ok '))?.slice('not ok '.length);
    const report = lines.find((line) => /Sanitizer: |runtime error: /.test(line));
    return `${program}: ${failed ?? report ?? (code === null ? 'it does not end' : `status ${code}`)}`;
  }
  return null;
}

const reason = await missing(ADDRESSES);
if (reason !== null) throw new Error(reason);
const wanted = process.argv.slice(2);
const chosen = MUTATIONS.filter(
  ({ file, check }) =>
    wanted.length === 0 || wanted.some((part) => `${file}: ${check}`.includes(part)),
);
let unseen = 0;
for (const mutation of chosen) {
  const folder = await mkdtemp(join(tmpdir(), 'weft-mutation-'));
  try {
    const seen = await failure(mutation, folder);
    if (seen === null) unseen += 1;
    process.stdout.write(`| ${mutation.file} | ${mutation.check} | ${seen ?? '**not seen**'} |\n`);
  } finally {
    await rm(folder, { recursive: true });
  }
}
process.stdout.write(`${chosen.length - unseen} of ${chosen.length} seen\n`);
process.exitCode = unseen === 0 ? 0 : 1;
