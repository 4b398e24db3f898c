/**
 * Counts the lines of production code by folder: `lib`, `workers` and `services` without blank lines, comments and
 * imports. `npm run size` prints the working tree; `npm run size -- COMMIT` prints a commit beside it and the change.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { codeLines } from './code-lines.ts';

const FOLDERS = ['lib', 'workers', 'services'];
const CODE = /\.(ts|cc|h|lua)$/;
/** More than the largest source file and the longest list of files. */
const OUTPUT_BYTES = 64 * 1024 * 1024;

const git = (...args: string[]): string =>
  execFileSync('git', args, { encoding: 'utf8', maxBuffer: OUTPUT_BYTES });

/** The folder that a file is counted under: `lib/hbone`, `workers/listener`, `services/ca`. */
const folderOf = (path: string): string => path.split('/').slice(0, 2).join('/');

/** Counts the code lines of each folder; `read` returns the text of a path. */
function countByFolder(
  paths: readonly string[],
  read: (path: string) => string,
): Map<string, number> {
  const counts = new Map<string, number>();
  for (const path of paths.filter((name) => CODE.test(name))) {
    const folder = folderOf(path);
    counts.set(folder, (counts.get(folder) ?? 0) + codeLines(path, read(path)));
  }
  return counts;
}

function countWorkingTree(): Map<string, number> {
  const listed = git('ls-files', '--cached', '--others', '--exclude-standard', '--', ...FOLDERS);
  const deleted = new Set(git('ls-files', '--deleted', '--', ...FOLDERS).split('\n'));
  const paths = [...new Set(listed.split('\n'))].filter((path) => !deleted.has(path));
  return countByFolder(paths, (path) => readFileSync(path, 'utf8'));
}

function countCommit(commit: string): Map<string, number> {
  const paths = git('ls-tree', '-r', '--name-only', commit, '--', ...FOLDERS).split('\n');
  return countByFolder(paths, (path) => git('show', `${commit}:${path}`));
}

const total = (counts: Map<string, number>): number =>
  [...counts.values()].reduce((sum, count) => sum + count, 0);

function changeText(before: number, after: number): string {
  if (before === 0) return 'new';
  const percent = ((after - before) / before) * 100;
  return `${percent > 0 ? '+' : ''}${percent.toFixed(1)} %`;
}

function print(before: Map<string, number> | null, after: Map<string, number>): void {
  const row = (name: string, was: number, is: number): string =>
    before === null
      ? `${name.padEnd(28)}${String(is).padStart(8)}`
      : `${name.padEnd(28)}${String(was).padStart(8)}${String(is).padStart(8)}${changeText(was, is).padStart(10)}`;
  const folders = new Set([...(before?.keys() ?? []), ...after.keys()]);
  const rows = [...folders]
    .sort()
    .map((folder) => row(folder, before?.get(folder) ?? 0, after.get(folder) ?? 0));
  rows.push(row('total', before === null ? 0 : total(before), total(after)));
  process.stdout.write(`${rows.join('\n')}\n`);
}

process.chdir(new URL('../..', import.meta.url).pathname);
const [commit] = process.argv.slice(2);
print(commit === undefined ? null : countCommit(commit), countWorkingTree());
