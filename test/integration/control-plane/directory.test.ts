import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { createControlPlaneKit } from '../../support/control-plane-kit.ts';
import type { ApiClient, ControlPlaneKit } from '../../support/control-plane-kit.ts';
import { until } from '../../support/until.ts';

const account = (name: string, namespace = 'demo'): string =>
  `apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: ${name}, namespace: ${namespace}}\n`;
const DEMO = 'apiVersion: v1\nkind: Namespace\nmetadata: {name: demo}\n';

async function prepare(kit: ControlPlaneKit): Promise<{
  write: (name: string, text: string) => Promise<void>;
  remove: (name: string) => Promise<void>;
  environment: Record<string, string>;
}> {
  const dir = join(kit.ca.dir, 'manifests');
  await mkdir(dir);
  return {
    write: async (name, text) => {
      const temporary = join(dir, `.${name}.tmp`);
      await writeFile(temporary, text);
      await rename(temporary, join(dir, name));
    },
    remove: (name) => rm(join(dir, name)),
    environment: { WEFT_CONTROL_PLANE_MANIFESTS_DIR: dir },
  };
}

const accounts = async (api: ApiClient): Promise<string> =>
  (await api.objects('ServiceAccount'))
    .map(({ metadata }) => metadata.name)
    .sort()
    .join(' ');

const eventually = (api: ApiClient, expected: string): Promise<boolean> =>
  until(async () => (await accounts(api)) === expected, { what: `accounts ${expected}` });

test('files are applied, changed and removed', async (t) => {
  const kit = await createControlPlaneKit(t);
  const { write, remove, environment } = await prepare(kit);
  // The files' order works only when the namespace's file is applied first.
  await write('a.yaml', `${account('one')}---\n${account('two')}`);
  await write('z.yaml', DEMO);
  await write('notes.txt', 'not a manifest');
  await kit.start(environment);
  t.is(await accounts(kit.api), 'one two');
  await write('a.yaml', `${account('two')}---\n${account('three')}`);
  await eventually(kit.api, 'three two');
  await write(
    'b.json',
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'ServiceAccount',
      metadata: { name: 'four', namespace: 'demo' },
    }),
  );
  await eventually(kit.api, 'four three two');
  await remove('a.yaml');
  await eventually(kit.api, 'four');
});

test('a broken file is named, and what it said before stays', async (t) => {
  const kit = await createControlPlaneKit(t);
  const { write, environment } = await prepare(kit);
  await write('0.yaml', DEMO);
  await write('a.yaml', account('one'));
  const actor = await kit.start(environment);
  await write('a.yaml', `${account('one')}---\n${account('Two')}`);
  await write('b.yaml', account('good'));
  await eventually(kit.api, 'good one');
  const line = await until(
    () => actor.lines.find(({ message }) => message === 'manifests.file-refused'),
    { what: 'the refusal in the log' },
  );
  t.is(line['file'], 'a.yaml');
  t.like(line['problems'], [{ index: 1, path: 'metadata.name' }]);
  t.regex(await actor.metrics(), /manifest_files_refused_total 1/);
  t.regex(await actor.metrics(), /manifest_files_broken 1/);
  await write('a.yaml', 'a: b: c');
  await until(() => actor.lines.filter(({ message }) => message === 'manifests.file-refused')[1], {
    what: 'the second refusal',
  });
  t.is(await accounts(kit.api), 'good one');
  await write('a.yaml', `${account('one')}---\n${account('two')}`);
  await eventually(kit.api, 'good one two');
});

test('what the API deleted stays deleted until the file changes, also after a restart', async (t) => {
  const kit = await createControlPlaneKit(t);
  const { write, environment } = await prepare(kit);
  await write('a.yaml', `${DEMO}---\n${account('one')}---\n${account('two')}`);
  const first = await kit.start(environment);
  await kit.api.manifests('delete', account('one'));
  await first.stop();
  await kit.start(environment);
  t.is(await accounts(kit.api), 'two');
  await write(
    'a.yaml',
    `${DEMO}---\n${account('one')}---\n${account('two')}---\n${account('three')}`,
  );
  await eventually(kit.api, 'one three two');
});

test('an object belongs to one file; it may move to another', async (t) => {
  const kit = await createControlPlaneKit(t);
  const { write, environment } = await prepare(kit);
  await write('a.yaml', `${DEMO}---\n${account('one')}`);
  const actor = await kit.start(environment);
  await write('b.yaml', account('one'));
  const line = await until(
    () => actor.lines.find(({ message }) => message === 'manifests.file-refused'),
    { what: 'the refusal' },
  );
  t.is(line['file'], 'b.yaml');
  t.regex(String(line['error']), /the object is already defined in a\.yaml/);
  await write('a.yaml', `${DEMO}---\n${account('two')}`);
  await eventually(kit.api, 'one two');
});

test('files that went while the process was down take their objects along', async (t) => {
  const kit = await createControlPlaneKit(t);
  const { write, remove, environment } = await prepare(kit);
  await write('0.yaml', DEMO);
  await write('a.yaml', account('one'));
  const first = await kit.start(environment);
  await kit.api.apply(account('by-api'));
  await first.stop();
  await remove('a.yaml');
  await kit.start(environment);
  t.is(await accounts(kit.api), 'by-api');
});
