/** The namespaces of pods, opened by an agent that has no descriptor left to read their addresses. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import test from 'ava';
import { bareEnvironment } from '../../support/bare-environment.ts';
import type { Starved } from '../../support/starved-namespaces-process.ts';

const EXHAUSTED = /Too many open files/;

/** Runs in a process of its own, where nothing else opens descriptors: glibc's arenas, for one, read a file as they grow. */
async function starved(whose: 'record' | 'runtime' | 'process'): Promise<Starved> {
  const script = new URL('../../support/starved-namespaces-process.ts', import.meta.url).pathname;
  const env = bareEnvironment({ MALLOC_ARENA_MAX: '1' });
  const { stdout } = await promisify(execFile)(process.execPath, [script, whose], { env });
  return JSON.parse(stdout) as Starved;
}

test('a descriptor is returned when a named namespace cannot be read', async (t) => {
  const { error, left } = await starved('record');
  t.is(error?.code, 'NATIVE_SYSCALL');
  t.regex(error?.text ?? '', EXHAUSTED);
  t.is(left, 1);
});

for (const [whose, logged] of [
  ['runtime', 1],
  ['process', 0],
] as const) {
  test(`a descriptor is returned when a namespace of a ${whose} cannot be read`, async (t) => {
    const { error, left, ...told } = await starved(whose);
    t.is(error?.code, 'NETNS_UNAVAILABLE');
    t.regex(error?.cause ?? '', EXHAUSTED);
    t.is(left, 1);
    t.is(told.logged, logged);
  });
}
