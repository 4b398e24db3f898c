/** docs/conformance.md: which test holds Weft to which rule. `npm run docs` writes it. */
import { existsSync } from 'node:fs';
import { glob, readFile, writeFile } from 'node:fs/promises';
import type { Rule, Specification } from './rule.ts';
import { dataplane } from './rules/dataplane.ts';
import { dns } from './rules/dns.ts';
import { hbone } from './rules/hbone.ts';
import { inpod } from './rules/inpod.ts';
import { istiodAmbient } from './rules/istiod-ambient.ts';
import { observability } from './rules/observability.ts';
import { policy } from './rules/policy.ts';

/** Where the page lies. */
export const CONFORMANCE_PAGE = new URL('../../docs/conformance.md', import.meta.url);

const SPECIFICATIONS = [
  dataplane,
  hbone,
  policy,
  dns,
  inpod,
  observability,
  istiodAmbient,
] as const;
const ROOT = new URL('../../', import.meta.url);
const TAG = /spec: ([a-z0-9-]+\.md) §([0-9]+(?:\.[0-9]+)*)/g;

const HEAD = `# Conformance

Which tests hold Weft to which rule of the protocols it speaks. Made by \`npm run docs\` from the rules in \`test/conformance/rules\` and from the tags
\`spec: <file> §<section>\` in the tests. *Tested* means that a test which names the rule is part of the suite, which must be green; *deviates* that
Weft does something else on purpose, with the reason; *missing* that no test names the rule.
`;

/** A tag found in a test. */
interface Tag {
  readonly file: string;
  readonly section: string;
  readonly test: string;
}

/** The page as it should be, and the tags that name no rule. */
export async function conformancePage(): Promise<{
  readonly text: string;
  readonly unknown: readonly string[];
}> {
  const tags = await readTags();
  const parts = SPECIFICATIONS.map((specification) => section(specification, tags));
  const unknown = tags
    .filter((tag) => !SPECIFICATIONS.some((specification) => names(specification, tag)))
    .map(({ file, section: number, test }) => `${test}: ${file} §${number}`);
  return { text: `${HEAD}\n${summary(tags)}\n\n${parts.join('\n\n')}\n`, unknown };
}

async function readTags(): Promise<readonly Tag[]> {
  const tags: Tag[] = [];
  for await (const path of glob('test/**/*.ts', { cwd: ROOT })) {
    if (path.startsWith('test/conformance/')) continue;
    const text = await readFile(new URL(path, ROOT), 'utf8');
    for (const [, file = '', number = ''] of text.matchAll(TAG)) {
      tags.push({ file, section: number, test: path.slice('test/'.length) });
    }
  }
  return tags;
}

/** A tag may be finer than its rule: §4.4.2 stands for rule 4.4 where that has no rules below it. */
function covers(tag: Tag, file: string, { section: number }: Rule): boolean {
  return tag.file === file && (tag.section === number || tag.section.startsWith(`${number}.`));
}

/** Whether the tag means something here: a rule, what is below one, or a section that has rules. */
function names({ file, rules }: Specification, tag: Tag): boolean {
  const inside = ({ section: number }: Rule): boolean =>
    tag.file === file && number.startsWith(`${tag.section}.`);
  return rules.some((one) => covers(tag, file, one) || inside(one));
}

function status(one: Rule, tests: readonly string[]): string {
  if (one.outside !== undefined) return 'not applicable';
  if (tests.length === 0) return 'missing';
  return one.deviates === undefined ? 'tested' : 'deviates';
}

/** Tests of a rule: those that name it, or a rule below it that has no line of its own. */
function testsOf({ file, rules }: Specification, one: Rule, tags: readonly Tag[]): string[] {
  const found = tags.filter((tag) => {
    if (!covers(tag, file, one)) return false;
    const finer = rules.some(
      (other) => other.section.length > one.section.length && covers(tag, file, other),
    );
    return !finer;
  });
  return [...new Set(found.map(({ test }) => test))].toSorted();
}

function section(specification: Specification, tags: readonly Tag[]): string {
  const rows = specification.rules.map((one) => {
    const tests = testsOf(specification, one, tags);
    const where = tests.map((test) => `\`${test}\``).join(', ');
    return `| §${one.section} | ${one.demands} | ${status(one, tests)} | ${where}${reason(one)} |`;
  });
  const head = ['| Rule | Demands | State | Tests |', '|---|---|---|---|'];
  return [`## ${specification.title}`, '', ...head, ...rows].join('\n');
}

function reason({ deviates, outside }: Rule): string {
  if (outside !== undefined) return outside;
  if (deviates === undefined) return '';
  const path = `decisions/${deviates}.md`;
  if (!existsSync(new URL(`docs/${path}`, ROOT))) throw new Error(`docs/${path} does not exist`);
  return ` ([why](${path}))`;
}

function summary(tags: readonly Tag[]): string {
  const states = SPECIFICATIONS.flatMap((specification) =>
    specification.rules.map((one) => status(one, testsOf(specification, one, tags))),
  );
  const count = (state: string): number => states.filter((other) => other === state).length;
  return `${states.length} rules: ${count('tested')} tested, ${count('deviates')} deviate on purpose, ${count('missing')} missing, ${count('not applicable')} not applicable.`;
}

if (import.meta.main) {
  const { text } = await conformancePage();
  await writeFile(CONFORMANCE_PAGE, text);
}
