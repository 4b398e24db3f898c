/** The kinds that `weft get` lists. The file of a kind is loaded on demand. */
import type { Found, Mesh } from '../mesh.ts';

/** How a kind is read and shown. JSON output has the lines unchanged. */
export interface ResourceKind<Line> {
  /** Each column: a field under its own name, or a title and a cell. */
  readonly columns: readonly (Field<Line> | readonly [title: string, cell: Cell<Line>])[];
  read(mesh: Mesh): Promise<Found<Line>>;
}

/** A list becomes its items with commas. */
type CellValue = string | number | readonly string[] | null;
type Cell<Line> = (line: Line) => CellValue;
/** Names of the fields that a cell can show. */
type Field<Line> = {
  [Name in keyof Line & string]: Line[Name] extends CellValue ? Name : never;
}[keyof Line & string];

const loaders = {
  pods: async () => erased((await import('./pods.ts')).kind),
  workloads: async () => erased((await import('./state.ts')).workloads),
  services: async () => erased((await import('./state.ts')).services),
  policies: async () => erased((await import('./state.ts')).policies),
  certificates: async () => erased((await import('./proxies.ts')).certificates),
  connections: async () => erased((await import('./proxies.ts')).connections),
  queues: async () => erased((await import('./queues.ts')).kind),
  conditions: async () => erased((await import('./control-plane.ts')).conditions),
  nacks: async () => erased((await import('./control-plane.ts')).nacks),
} as const;

/** The name of a kind. */
export type KindName = keyof typeof loaders;

/** All kinds. */
export const KINDS = Object.keys(loaders) as readonly KindName[];

/** Reads a kind; returns its lines, and the same lines as table rows. */
export interface LoadedKind {
  readonly header: readonly string[];
  read(mesh: Mesh): Promise<Found<unknown> & { readonly rows: readonly (readonly string[])[] }>;
}

/** Loads the module of a kind. */
export function loadKind(name: KindName): Promise<LoadedKind> {
  return loaders[name]();
}

function erased<Line>(kind: ResourceKind<Line>): LoadedKind {
  const columns = kind.columns.map((column): readonly [string, Cell<Line>] =>
    typeof column === 'string' ? [titleOf(column), (line) => line[column] as CellValue] : column,
  );
  // An empty cell would shift the later ones for scripts that split the line.
  const row = (line: Line): string[] =>
    columns.map(([, cell]) => (cell(line) ?? '').toString() || '-');
  return {
    header: columns.map(([title]) => title),
    read: async (mesh) => {
      const found = await kind.read(mesh);
      return { ...found, rows: found.lines.map(row) };
    },
  };
}

/** `NOT BEFORE` for `notBefore`. */
function titleOf(field: string): string {
  return field.replaceAll(/[A-Z]/g, ' $&').toUpperCase();
}
