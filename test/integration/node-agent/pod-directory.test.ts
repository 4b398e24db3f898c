import { execFileSync } from 'node:child_process';
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { pino } from 'pino';
import { systemClock } from '../../../lib/clock/clock.ts';
import { PodDirectory } from '../../../services/node-agent/pod-directory.ts';
import type { PodSet } from '../../../services/node-agent/pod-source.ts';
import { podRecord } from '../../support/pod-records.ts';

test('what is no regular file holds up no other pod', async (t) => {
  const path = await mkdtemp(join(tmpdir(), 'weft-pods-'));
  t.teardown(() => rm(path, { recursive: true }));
  execFileSync('mkfifo', [join(path, 'a-pipe.json')]);
  await symlink('/dev/zero', join(path, 'b-endless.json'));
  const record = podRecord({ uid: 'c-good', netns: '/run/netns/x' });
  await writeFile(join(path, 'c-good.json'), JSON.stringify(record));
  const problems: string[] = [];
  const directory = new PodDirectory({
    path,
    node: record.node,
    rescanMs: 60_000,
    clock: systemClock,
    log: pino({ enabled: false }),
    onProblem: (kind) => problems.push(kind),
    supervise: (work) => void work.catch((error: unknown) => t.fail(String(error))),
  });
  t.teardown(() => directory.close());
  const sets: PodSet[] = [];
  await directory.start((set) => sets.push(set));
  t.deepEqual([...(sets.at(-1)?.pods.keys() ?? [])], ['c-good']);
  t.deepEqual([...(sets.at(-1)?.unreadable ?? [])], ['a-pipe', 'b-endless']);
  t.deepEqual(problems, ['record', 'record']);
});
