/** Resolves references to the protocol rules: `docs/spec/<page>.md §<number>` in code, `spec: <page>.md §<number>` in tests. */
import { glob, readFile } from 'node:fs/promises';

const ROOT = new URL('../../', import.meta.url);
const SOURCES = [
  '{lib,services,workers,test,infra,proto}/**/*.{ts,cc,h,lua,proto,sh}',
  'docs/*/*.md',
];
const REFERENCE =
  /(?:docs\/spec\/|spec: )(?<page>[a-z-]+\.md)(?<numbers>(?:(?:,| and)? §[0-9]+(?:\.[0-9]+)*)*)/g;
const DECISION = /docs\/decisions\/(?<page>[a-z0-9-]+\.md)/g;
const LINK = /\]\((?<path>[^)#:]+\.md)(?:#[^)]*)?\)/g;

/**
 * Lists the numbers that a rule page defines: its headings (`2`, `2.1`) and, below each, the items of numbered lists
 * and the rows of numbered tables (`2.1.4`).
 */
export function rulesOf(page: string): ReadonlySet<string> {
  const numbers = new Set<string>();
  let section = '';
  for (const line of page.split('\n')) {
    const heading = /^#+ ([0-9]+(?:\.[0-9]+)*)\.? /.exec(line)?.[1];
    const item = /^(?:([0-9]+)\. |\| ([0-9]+) \|)/.exec(line);
    if (heading !== undefined) section = heading;
    else if (item === null) continue;
    numbers.add(heading ?? `${section}.${item?.[1] ?? item?.[2] ?? ''}`);
  }
  return numbers;
}

async function readPages(): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  const pages = new Map<string, ReadonlySet<string>>();
  for await (const path of glob('docs/spec/*.md', { cwd: ROOT })) {
    const text = await readFile(new URL(path, ROOT), 'utf8');
    pages.set(path.slice('docs/spec/'.length), rulesOf(text));
  }
  return pages;
}

function brokenRules(text: string, pages: ReadonlyMap<string, ReadonlySet<string>>): string[] {
  return [...text.matchAll(REFERENCE)].flatMap(({ groups }) => {
    const page = groups?.['page'] ?? '';
    const rules = pages.get(page);
    if (rules === undefined) return [page];
    return [...(groups?.['numbers'] ?? '').matchAll(/§([0-9.]+)/g)]
      .filter(([, number = '']) => !rules.has(number))
      .map(([, number = '']) => `${page} §${number}`);
  });
}

/** Finds references to a rule, a decision or a page that does not exist. Each is `file: reference`. */
export async function brokenReferences(): Promise<readonly string[]> {
  const pages = await readPages();
  const exists = async (url: URL): Promise<boolean> =>
    readFile(url).then(
      () => true,
      () => false,
    );
  const broken: string[] = [];
  for await (const path of glob([...SOURCES, '*.md', '{services,infra,test,docs}/**/*.md'], {
    cwd: ROOT,
  })) {
    if (path.startsWith('proto/gen/')) continue;
    const text = await readFile(new URL(path, ROOT), 'utf8');
    broken.push(...brokenRules(text, pages).map((reference) => `${path}: ${reference}`));
    const links = path.endsWith('.md') ? [...text.matchAll(LINK)] : [];
    const targets = [
      ...[...text.matchAll(DECISION)].map((found) => new URL(found[0], ROOT)),
      ...links.map(({ groups }) => new URL(groups?.['path'] ?? '', new URL(path, ROOT))),
    ];
    for (const target of targets) {
      if (!(await exists(target)))
        broken.push(`${path}: ${target.pathname.slice(ROOT.pathname.length)}`);
    }
  }
  return [...new Set(broken)];
}
