import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { parseManifests, readManifests } from '../../../../services/local-mesh/manifests.ts';
import { makeScratch } from '../../../support/leftovers.ts';

const noInput = (): Promise<string> => Promise.reject(new Error('not asked for'));

test('documents keep their place; empty ones are skipped, lists stand for their items', (t) => {
  const text = '---\n# nothing\n---\nkind: A\n---\nkind: List\nitems: [{kind: B}, {kind: C}]\n';
  t.deepEqual(parseManifests('f', text), [
    { source: 'f', index: 1, object: { kind: 'A' } },
    { source: 'f', index: 2, object: { kind: 'B' } },
    { source: 'f', index: 2, object: { kind: 'C' } },
  ]);
  t.deepEqual(parseManifests('f', ''), []);
  t.deepEqual(parseManifests('f', '{"kind":"A"}'), [
    { source: 'f', index: 0, object: { kind: 'A' } },
  ]);
});

test('a broken document is named with its line and column', (t) => {
  const error = t.throws(() => parseManifests('my.yaml', 'kind: A\n---\nkind: [b\n'), {
    code: 'MANIFEST_INVALID',
  });
  t.regex(error.message, /^my\.yaml: document 1: line \d+, column \d+: /);
});

test('aliases cannot make a small file fill the memory', (t) => {
  const levels = Array.from({ length: 9 }, (_, level) => {
    const inner = level === 0 ? ['x'] : Array.from({ length: 9 }, () => `*l${level - 1}`);
    return `l${level}: &l${level} [${inner.join(', ')}]`;
  });
  t.throws(() => parseManifests('bomb', levels.join('\n')), {
    code: 'MANIFEST_INVALID',
    message: /^bomb: document 0: /,
  });
});

test('a folder is read by the names of its files, and not deeper', async (t) => {
  const folder = await makeScratch('manifests');
  t.teardown(() => rm(folder, { recursive: true }));
  await writeFile(join(folder, '20-b.yml'), 'kind: B\n');
  await writeFile(join(folder, '10-a.yaml'), 'kind: A\n');
  await writeFile(join(folder, '30-c.json'), '{"kind":"C"}');
  await writeFile(join(folder, 'notes.txt'), 'kind: [');
  await mkdir(join(folder, 'deeper'));
  await writeFile(join(folder, 'deeper/d.yaml'), 'kind: D\n');
  const documents = await readManifests(folder, noInput);
  t.deepEqual(
    documents.map(({ object }) => object),
    [{ kind: 'A' }, { kind: 'B' }, { kind: 'C' }],
  );
  await t.throwsAsync(readManifests(join(folder, 'deeper/none.yaml'), noInput), {
    code: 'MANIFEST_INVALID',
    message: /none\.yaml: /,
  });
  await t.throwsAsync(readManifests(join(folder, 'notes.txt'), noInput), {
    code: 'MANIFEST_INVALID',
  });
});

test('a dash is standard input', async (t) => {
  t.deepEqual(await readManifests('-', () => Promise.resolve('kind: A')), [
    { source: 'standard input', index: 0, object: { kind: 'A' } },
  ]);
});
