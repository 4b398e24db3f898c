import { rename, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../../lib/clock/clock.ts';
import { createLogger } from '../../../../lib/log/logger.ts';
import type { LocalSource } from '../../../../services/node-proxy/config/local-state.ts';
import { LOCAL_STATE_BYTES_MAX } from '../../../../services/node-proxy/limits.ts';
import { LocalState } from '../../../../services/node-proxy/state-thread/local-state.ts';
import { unpackRows } from '../../../../services/node-proxy/state-thread/packed-rows.ts';
import { makeScratch } from '../../../support/leftovers.ts';
import { until } from '../../../support/until.ts';

const workload = (name: string): string =>
  `- {uid: ${name}, name: ${name}, namespace: demo, workloadIps: [10.0.0.1], services: {}}`;
const policy = '- {name: p, namespace: demo, scope: Namespace, action: Allow, rules: []}';
const file = (name: string): string => `workloads:\n${workload(name)}\npolicies:\n${policy}\n`;

/** Records the changes fed as `table kind keys`. */
function follow(t: ExecutionContext, source: LocalSource) {
  const steps: string[] = [];
  const lines: string[] = [];
  const log = createLogger(
    { actor: 'node-proxy', level: 'info' },
    { write: (line: string) => void lines.push(line) },
  );
  const state = new LocalState(source, { clock: systemClock, log }, async (table, step) => {
    const keys = 'rows' in step ? [...unpackRows(step.rows)].map(({ key }) => key) : [];
    steps.push([table, step.kind, ...keys].join(' '));
  });
  t.teardown(() => state.close());
  return { state, steps, lines };
}

const stepsOf = (name: string): string[] => [
  'authorizations reset',
  'authorizations entries demo/p',
  'authorizations synced',
  'rejections reset',
  'rejections synced',
  'addresses reset',
  `addresses entries ${name}`,
  'addresses synced',
];

test('a text is fed as whole tables, policies first', async (t) => {
  const { state, steps } = follow(t, { text: file('one') });
  await state.start();
  t.deepEqual(steps, stepsOf('one'));
});

test('a file is followed; a broken, empty, huge or missing version leaves the last good one in force', async (t) => {
  const scratch = await makeScratch('local-state');
  t.teardown(() => rm(scratch, { recursive: true }));
  const path = join(scratch, 'state.yaml');
  const put = async (text: string): Promise<void> => {
    await writeFile(`${path}.new`, text);
    await rename(`${path}.new`, path);
  };
  await put(file('one'));
  const { state, steps, lines } = follow(t, { path });
  await state.start();
  t.deepEqual(steps.splice(0), stepsOf('one'));
  const refused = (pattern: RegExp) =>
    until(() => lines.some((line) => line.includes('local-state.unusable') && pattern.test(line)), {
      what: `a line with ${pattern.source}`,
    });
  await put('workloads: [{uid: 1');
  await refused(/state\.yaml/);
  await put(`workloads:\n- {uid: x, namespace: demo, workloadIps: [10.0.0.300], services: {}}\n`);
  await refused(/workloads\[0\]\.workloadIps\[0\]/);
  await put('\n');
  await refused(/is empty/);
  await truncate(path, LOCAL_STATE_BYTES_MAX + 1);
  await refused(/longer than 16777216 bytes/);
  await rm(path);
  await refused(/ENOENT/);
  t.deepEqual(steps, []);
  await put(file('two'));
  await until(() => steps.length === 8, { what: 'the new state' });
  t.deepEqual(steps, stepsOf('two'));
});

test('a first version that cannot be used is told, with what is wrong', async (t) => {
  const missing = follow(t, { path: '/nowhere/state.yaml' });
  await t.throwsAsync(missing.state.start(), { message: /LOCAL_XDS_PATH \/nowhere\/.*ENOENT/ });
  const broken = follow(t, { text: 'workload: []' });
  await t.throwsAsync(broken.state.start(), { message: /^LOCAL_XDS: .*workload/ });
  t.deepEqual([...missing.steps, ...broken.steps], []);
});
