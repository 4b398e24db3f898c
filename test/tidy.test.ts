/** Rules of the source tree that no linter knows: layers, sizes, and what must not be lying about. */
import { readFile, readdir } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import test from 'ava';
import { importCycles } from './support/import-cycles.ts';
import { isEventName, loggedEvents } from './support/log-events.ts';

const root = new URL('..', import.meta.url).pathname;
const LONGEST_FILE_LINES = 400;
/** A table of cases reads best in one piece. */
const LONGEST_TEST_LINES = 600;
/** Folders of lib, lowest first; a folder may import its own row and the rows above it in this list. */
const LIB_LAYERS: readonly (readonly string[])[] = [
  ['errors', 'clock', 'collections', 'digest', 'async', 'derived'],
  ['config', 'files', 'http', 'log', 'metrics', 'net', 'linux', 'profile', 'otlp', 'tls'],
  ['grpc', 'kubernetes', 'mesh-config'],
  ['identity', 'policy', 'state', 'bus'],
  ['xds', 'cri', 'docker', 'zds', 'hbone', 'redirect', 'kube', 'dns'],
  ['actor'],
];
/** Services that host actors; each may import those before it, and actors lazily. No other service imports a service. */
const HOSTS: readonly string[] = ['local-mesh', 'container-mesh', 'cli'];
/** Decisions only: no I/O, so no Node module but those that compute. */
const PURE = [
  /^lib\/(policy|dns)\//,
  /^lib\/state\/routing\.ts$/,
  /^lib\/redirect\/(rules|render)\.ts$/,
];
const COMPUTING_MODULES = new Set(['node:crypto', 'node:net']);
/** Messages under Istio's names (docs/spec/observability.md §3). */
const ISTIO_MESSAGES: ReadonlySet<string> = new Set(['connection opened']);
interface Source {
  readonly path: string;
  readonly text: string;
  readonly imports: readonly {
    readonly target: string;
    readonly typeOnly: boolean;
    readonly lazy: boolean;
  }[];
}

async function sources(): Promise<Source[]> {
  const folders = ['lib', 'services', 'workers', 'test'];
  const names = await Promise.all(
    folders.map(async (folder) =>
      (await readdir(join(root, folder), { recursive: true })).map((name) => join(folder, name)),
    ),
  );
  const paths = names.flat().filter((name) => name.endsWith('.ts'));
  return Promise.all(
    paths.map(async (path) => {
      const text = await readFile(join(root, path), 'utf8');
      return { path, text, imports: importsOf(path, text) };
    }),
  );
}

function importsOf(path: string, text: string): Source['imports'] {
  const place = (specifier: string): string =>
    specifier.startsWith('.') ? relative(root, join(root, dirname(path), specifier)) : specifier;
  const fixed = [...text.matchAll(/^(?:import|export)\s+(type\s)?(?:[^'";]*?from\s+)?'([^']+)'/gm)];
  const lazy = [...text.matchAll(/\bimport\('([^']+)'\)/g)];
  return [
    ...fixed.map((match) => ({
      target: place(match[2] ?? ''),
      typeOnly: match[1] !== undefined,
      lazy: false,
    })),
    ...lazy.map((match) => ({ target: place(match[1] ?? ''), typeOnly: false, lazy: true })),
  ];
}

const top = (path: string): string => path.split('/')[0] ?? '';
const folder = (path: string): string => path.split('/')[1] ?? '';
const libRow = (path: string): number => LIB_LAYERS.findIndex((row) => row.includes(folder(path)));

/** Why an import breaks the layers; null when it does not. */
function layerFault(path: string, target: string, lazy: boolean): string | null {
  const rank = ['lib', 'workers', 'services', 'test'];
  if (target === 'dockerode' && path !== 'lib/docker/engine-view.ts') {
    return 'only lib/docker loads dockerode';
  }
  if (!rank.includes(top(target))) return null;
  if (rank.indexOf(top(target)) > rank.indexOf(top(path))) return 'imports upwards';
  if (top(path) === 'lib' && top(target) === 'lib') {
    if (libRow(path) < 0) return `lib/${folder(path)} has no layer`;
    return libRow(target) > libRow(path) ? 'imports a higher layer of lib' : null;
  }
  if (top(path) === 'services' && top(target) === 'services' && folder(path) !== folder(target)) {
    if (!HOSTS.includes(folder(path))) return 'a service imports another service';
    if (!HOSTS.includes(folder(target))) return lazy ? null : 'actors are imported lazily';
    const later = HOSTS.indexOf(folder(target)) > HOSTS.indexOf(folder(path));
    return later ? 'a host of actors imports one above it' : null;
  }
  if (
    top(path) === 'services' &&
    top(target) === 'workers' &&
    !/\/protocol\/[a-z-]+\.ts$/.test(target)
  ) {
    return 'a service may import only the protocol of a worker';
  }
  return null;
}

test('imports follow the layers', async (t) => {
  const faults = (await sources())
    .filter(({ path }) => top(path) !== 'test')
    .flatMap(({ path, imports }) =>
      imports
        .map((line) => ({
          path,
          ...line,
          fault: layerFault(path, line.target, line.lazy || line.typeOnly),
        }))
        .filter((line) => line.fault !== null)
        .map((line) => `${line.path}: ${line.target}: ${line.fault}`),
    );
  t.deepEqual(faults, []);
});

test('no files import each other, types included', async (t) => {
  const imports = new Map(
    (await sources()).map(({ path, imports }) => [
      path,
      // A module that is loaded later does not have to exist before the file.
      imports.filter(({ lazy }) => !lazy).map(({ target }) => target),
    ]),
  );
  t.deepEqual(importCycles(imports), []);
});

test('cycles are found', (t) => {
  const imports = new Map([
    ['a', ['b', 'elsewhere']],
    ['b', ['c', 'd']],
    ['c', ['a']],
    ['d', ['e', 'c']],
    ['e', []],
    ['f', ['f', 'a']],
    ['g', ['h']],
    ['h', ['a', 'i']],
    ['i', ['h']],
  ]);
  t.deepEqual(importCycles(imports), [['a', 'b', 'c', 'd'], ['f'], ['h', 'i']]);
});

test('decisions import no Node module that does I/O', async (t) => {
  const faults = (await sources())
    .filter(({ path }) => PURE.some((pattern) => pattern.test(path)))
    .flatMap(({ path, imports }) =>
      imports
        .filter(({ target }) => target.startsWith('node:') && !COMPUTING_MODULES.has(target))
        .map(({ target }) => `${path}: ${target}`),
    );
  t.deepEqual(faults, []);
});

test('listener threads never look up names by the system, whose few threads a dead name keeps busy', async (t) => {
  const faults = (await sources())
    .filter(({ path }) => path.startsWith('workers/'))
    .flatMap(({ path, imports }) => {
      const found = imports.filter(({ target }) => /^(node:)?dns\b/.test(target));
      return found.map(({ target }) => `${path} imports ${target}`);
    });
  t.deepEqual(faults, []);
});

test('generated code is imported only by decoders', async (t) => {
  const allowed = /^(lib\/(cri|xds|identity|zds)\/|test\/)/;
  const faults = (await sources())
    .filter(
      ({ path, imports }) =>
        !allowed.test(path) && imports.some((line) => line.target.startsWith('#proto/')),
    )
    .map(({ path }) => path);
  t.deepEqual(faults, []);
});

function longest(path: string): number {
  return top(path) === 'test' ? LONGEST_TEST_LINES : LONGEST_FILE_LINES;
}

test('files are short, and nothing is left to do without an owner', async (t) => {
  const faults = (await sources()).flatMap(({ path, text }) => [
    ...(text.split('\n').length > longest(path) ? [`${path}: over ${longest(path)} lines`] : []),
    ...[...text.matchAll(/\b(?:TODO|FIXME|XXX)\b(?!\()[^\n]*/g)]
      .filter(() => path !== 'test/tidy.test.ts')
      .map((match) => `${path}: ${match[0]}`),
  ]);
  t.deepEqual(faults, []);
});

test('no test waits by time', async (t) => {
  const faults = (await sources())
    .filter(({ path }) => path.endsWith('.test.ts') && path !== 'test/tidy.test.ts')
    .flatMap(({ path, text }) =>
      [...text.matchAll(/await (?:sleep|delay|setTimeout)\([^)]*\)/g)].map(
        (match) => `${path}: ${match[0]}`,
      ),
    );
  t.deepEqual(faults, []);
});

test('no file imports values of node:http, which loads a second HTTP client', async (t) => {
  const faults = (await sources())
    .filter(({ text }) => /^import (?!type\b)[^;]* from 'node:http'/m.test(text))
    .map(({ path }) => path);
  t.deepEqual(faults, []);
});

test('zod is imported as a namespace: its name z brings its messages in forty languages', async (t) => {
  const faults = (await sources())
    .filter(({ text }) => /^import (?:type )?\{[^;]*\bz\b[^;]*\} from 'zod'/m.test(text))
    .map(({ path }) => path);
  t.deepEqual(faults, []);
});

test('files that run built do not find other files by their own place', async (t) => {
  const faults = (await sources())
    .filter(
      ({ path, text }) => top(path) !== 'test' && /new URL\([^;]*import\.meta\.url/.test(text),
    )
    .map(({ path }) => path);
  t.deepEqual(faults, []);
});

test('log events are dotted names', async (t) => {
  const faults = (await sources())
    .filter(({ path }) => top(path) !== 'test')
    .flatMap(({ path, text }) =>
      loggedEvents(text)
        .filter(({ event }) => !isEventName(event) && !ISTIO_MESSAGES.has(event))
        .map(({ line, event }) => `${path}:${line}: ${event}`),
    );
  t.deepEqual(faults, []);
});

test('names of log events are found', (t) => {
  const source = [
    "this.#log.info({ path, text: f('a, b') }, 'file.loaded');",
    "log.warn({ a: [1, 2] }, kind === 'x' ? 'file is lost' : `file.${reason}`,);",
    "logger.error('Lost');",
    "deps.log.debug({ a: 'not this' }, EVENT);",
  ].join('\n');
  const found = loggedEvents(source);
  t.deepEqual(found, [
    { line: 1, event: 'file.loaded' },
    { line: 2, event: 'file is lost' },
    { line: 2, event: 'file.${reason}' },
    { line: 3, event: 'Lost' },
  ]);
  t.deepEqual(
    found.map(({ event }) => isEventName(event)),
    [true, false, true, false],
  );
});

/** A comment that begins with a noun clause or with "Of", as CONTRIBUTING.md forbids. */
const NOUN_CLAUSE =
  /^ *(?:\/\*\*|\*|\/\/) *(?:What|Who|Whose|Whoever|Whatever|Of) [a-z`{][^?\n]*$/gm;

test('comments do not begin with a noun clause', async (t) => {
  const faults = (await sources()).flatMap(({ path, text }) =>
    [...text.matchAll(NOUN_CLAUSE)].map(([line]) => `${path}: ${line.trim()}`),
  );
  t.deepEqual(faults, []);
});
