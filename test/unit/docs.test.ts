/** Tests that links, files, metrics and npm scripts in the pages exist. */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, join, normalize } from 'node:path';
import test from 'ava';

const root = new URL('../..', import.meta.url).pathname;
const places = ['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', 'docs', 'infra', 'lib', 'proto'];
const find = [...places, 'services', 'workers', 'test', '-type', 'f'];
const files = execFileSync('find', find, { cwd: root, encoding: 'utf8' })
  .split('\n')
  .filter((path) => path !== '' && !path.startsWith('proto/gen/'));
const pages = await Promise.all(
  files
    .filter((path) => path.endsWith('.md'))
    .map(async (path) => ({ path, text: await readFile(join(root, path), 'utf8') })),
);

test('every relative link leads somewhere', (t) => {
  for (const { path, text } of pages) {
    for (const [, target = ''] of text.matchAll(/\]\(([^)#\s]+)(?:#[^)]*)?\)/g)) {
      if (/^[a-z]+:/.test(target)) continue;
      t.true(existsSync(join(root, normalize(join(dirname(path), target)))), `${path}: ${target}`);
    }
  }
});

test('every file and folder of the tree that a page names exists', (t) => {
  for (const { path, text } of pages) {
    for (const [, name = ''] of text.matchAll(
      /`((?:lib|services|workers|infra|test|docs|proto)\/[\w./-]*)`/g,
    )) {
      const found =
        existsSync(join(root, name)) || files.some((file) => file.startsWith(`${name}.`));
      t.true(found, `${path}: ${name}`);
    }
  }
});

test('every metric of docs/operating.md is declared', async (t) => {
  const page = await readFile(join(root, 'docs/operating.md'), 'utf8');
  const names = [...page.matchAll(/`((?:weft|istio|nodeagent|pilot|citadel)_[a-z_]+)/g)].map(
    (match) => match[1] ?? '',
  );
  const sources = await Promise.all(
    files
      .filter((file) => /^(?:lib|services|workers)\/.*\.ts$/.test(file))
      .map((file) => readFile(join(root, file), 'utf8')),
  );
  const code = sources.join('\n');
  const composed = [...code.matchAll(/`([a-z]+_[a-z_]*)\$\{\w+\}([a-z_]*)`/g)];
  for (const name of names) {
    const declared =
      code.includes(`'${name}'`) ||
      composed.some(([, start = '', end = '']) => name.startsWith(start) && name.endsWith(end));
    t.true(declared, name);
  }
});

test('every npm script that a page names exists', async (t) => {
  const { scripts } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>;
  };
  for (const { path, text } of pages) {
    for (const [, name = ''] of text.matchAll(/npm run ([a-z:-]+)/g)) {
      t.true(name in scripts, `${path}: npm run ${name}`);
    }
  }
});
