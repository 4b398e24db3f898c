/**
 * Reads and changes the lists of CNI plugins that a container runtime loads. Pure. Values of others keep their meaning: numbers
 * keep their digits, and a text that is no strict JSON (comments, trailing commas) is refused, for no runtime would load it.
 */
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';

/** The name of the plugin: of its program, and of its entry in a list. */
export const PLUGIN = 'weft-cni';

type Json = Readonly<Record<string, unknown>>;

/** A file of the runtime's folder that it would load. */
export interface NetworkList {
  readonly file: string;
  /** True for a `.conf` or `.json` file, which is a single plugin. */
  readonly single: boolean;
  /** The fields of the list apart from its plugins. */
  readonly fields: Json;
  readonly plugins: readonly Json[];
}

/** A file that no runtime would load, and why. */
export interface RefusedFile {
  readonly file: string;
  readonly problem: string;
}

/** The version that a single plugin without a version gets, as istio-cni does. */
const FALLBACK_VERSION = '0.3.1';
const FALLBACK_NAME = 'k8s-pod-network';
/** Marks the entry in a list that is a copy of the primary's. */
const COPY_MARK = 'own_list';
/** The versions that the plugin speaks (plugin/request.h). */
const SPOKEN: readonly unknown[] = ['0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0'];
/** The endings of files that containerd and CRI-O load. */
const ENDING = /\.(?:conflist|conf|json)$/;

/** Reads a file by its name and text. Throws CONFIG_INVALID for one that no runtime would load. */
export function readNetworkList(file: string, text: string): NetworkList {
  const value = parse(file, text);
  if (!isObject(value)) throw invalid(file, 'must be an object');
  if (!file.endsWith('.conflist')) {
    if (!isPlugin(value)) throw invalid(file, 'has no type');
    const { cniVersion = FALLBACK_VERSION, ...plugin } = value;
    const name = value['name'] ?? FALLBACK_NAME;
    return { file, single: true, fields: { cniVersion, name }, plugins: [plugin] };
  }
  const { plugins, ...fields } = value;
  if (typeof fields['name'] !== 'string' || fields['name'] === '') {
    throw invalid(file, 'has no name');
  }
  if (!Array.isArray(plugins) || plugins.length === 0 || !plugins.every(isPlugin)) {
    throw invalid(file, 'plugins must be a list of objects with a type');
  }
  return { file, single: false, fields, plugins };
}

/** Returns true for a name that runtimes load. */
export function isNetworkFile(name: string): boolean {
  return ENDING.test(name);
}

/**
 * Returns the list that the runtime would load of these files: the first by name that is valid, besides `own` and copies of a
 * former name. `wanted` names one, or its twin with the other ending.
 */
export function findPrimary(
  files: ReadonlyMap<string, string>,
  own: string | null,
  wanted: string | null,
): { readonly primary: NetworkList | null; readonly refused: readonly RefusedFile[] } {
  const refused: RefusedFile[] = [];
  for (const file of [...files.keys()].toSorted(byBytes)) {
    if (file === own || !isNetworkFile(file)) continue;
    if (wanted !== null && stem(file) !== stem(wanted)) continue;
    try {
      const list = readNetworkList(file, files.get(file) ?? '');
      if (isCopy(list)) continue;
      // Weft's entry alone is what a removal of the others has left.
      if (foreign(list).length > 0) return { primary: list, refused };
      refused.push({ file, problem: 'has no plugin besides weft-cni' });
    } catch (error) {
      refused.push({ file, problem: errorText(error) });
    }
  }
  return { primary: null, refused };
}

/** Returns the text of the list with Weft's entry as its last. */
export function withPlugin(list: NetworkList, entry: Json): string {
  return write(list.fields, [...foreign(list), entry]);
}

/** Returns the text of a list of Weft's own: the primary's plugins and Weft's. */
export function copyWithPlugin(primary: NetworkList, entry: Json): string {
  return withPlugin(primary, { ...entry, [COPY_MARK]: true });
}

/** Returns true for a list that {@link copyWithPlugin} made. */
export function isCopy({ plugins }: NetworkList): boolean {
  return plugins.some((plugin) => plugin['type'] === PLUGIN && plugin[COPY_MARK] === true);
}

/** Returns true for a list with an entry of Weft. */
export function hasEntry({ plugins }: NetworkList): boolean {
  return plugins.some(({ type }) => type === PLUGIN);
}

/** Returns the text of the list without Weft's entry; null when it has none. */
export function withoutPlugin(list: NetworkList): string | null {
  return hasEntry(list) ? listText(list) : null;
}

/** Returns the text of the list of the plugins besides Weft's, also for the file of a single plugin. */
export function listText(list: NetworkList): string {
  return write(list.fields, foreign(list));
}

/** Returns true when Weft's entry is the last of the list, and has these settings. */
export function hasPlugin(list: NetworkList, entry: Json): boolean {
  const others = foreign(list);
  const last = list.plugins.at(-1);
  return (
    others.length === list.plugins.length - 1 && JSON.stringify(last) === JSON.stringify(entry)
  );
}

/**
 * Returns why Weft's plugin cannot follow those of the list; null when it can. Runtimes take the newest version that the list names, and
 * a plugin that does not speak it lets no pod start.
 */
export function versionFault({ file, fields }: NetworkList): string | null {
  const { cniVersion, cniVersions } = fields;
  const named = [cniVersion, ...(Array.isArray(cniVersions) ? cniVersions : [])]
    .filter((version) => typeof version === 'string')
    .toSorted((a, b) => a.localeCompare(b, 'en', { numeric: true }));
  const newest = named.at(-1);
  if (SPOKEN.includes(newest)) return null;
  const what = newest === undefined || newest === '' ? 'has no cniVersion' : `is of ${newest}`;
  return `${file} ${what}: ${PLUGIN} speaks ${SPOKEN.join(', ')}`;
}

/** Returns the name of the list that stands for the file of a single plugin. */
export function listName({ file }: NetworkList): string {
  return `${stem(file)}.conflist`;
}

/** Returns true when a runtime that sorts names loads `file` before `other`. */
export function sortsBefore(file: string, other: string): boolean {
  return byBytes(file, other) < 0;
}

/** The order of Go's sort, which runtimes use. */
function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

function foreign({ plugins }: NetworkList): Json[] {
  return plugins.filter(({ type }) => type !== PLUGIN);
}

function stem(file: string): string {
  return file.replace(ENDING, '');
}

function parse(file: string, text: string): unknown {
  try {
    // A number may have more digits than a double.
    return JSON.parse(text, (_key, value, { source }) =>
      typeof value === 'number' ? JSON.rawJSON(source) : value,
    );
  } catch (error) {
    throw invalid(file, `is no JSON: ${errorText(error)}`);
  }
}

function write(fields: Json, plugins: readonly Json[]): string {
  return `${JSON.stringify({ ...fields, plugins }, null, 2)}\n`;
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isPlugin(value: unknown): value is Json {
  return isObject(value) && typeof value['type'] === 'string' && value['type'] !== '';
}

function invalid(file: string, why: string): MeshError {
  return new MeshError('CONFIG_INVALID', `${file} ${why}`);
}
