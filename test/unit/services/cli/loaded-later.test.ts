import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import test from 'ava';
import { LOADED_LATER } from '../../../../services/cli/loaded-later.ts';

const root = resolve(import.meta.dirname, '../../../..');

/** Modules that `weft warm` loads through the tables that name them. */
const TABLES = [
  'services/local-mesh/actors.ts',
  'services/cli/command-table.ts',
  'services/cli/get/kinds.ts',
];

function sources(): string[] {
  return ['lib', 'services', 'workers'].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((path) => path.endsWith('.ts') && !path.endsWith('.d.ts'))
      .map((path) => join(folder, path)),
  );
}

test('every file that is imported on demand, and every entry of a thread, is warmed', (t) => {
  const wanted = new Set(sources().filter((path) => path.endsWith('.worker.ts')));
  for (const path of sources().filter((source) => !TABLES.includes(source))) {
    for (const [, target] of readFileSync(join(root, path), 'utf8').matchAll(
      /import\(\s*'(\.[^']+\.ts)',?\s*\)/g,
    )) {
      if (target !== undefined) wanted.add(relative(root, resolve(root, dirname(path), target)));
    }
  }
  t.deepEqual([...wanted].sort(), [...LOADED_LATER].sort());
});
