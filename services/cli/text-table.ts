/** Text for people: tables, facts and lists of names. */

/** Longest list of names; the rest is counted. */
const MAX_NAMES = 10;

/** Lines of aligned columns, header first; the last column is not padded. */
export function textTable(
  header: readonly string[],
  rows: readonly (readonly string[])[],
): string[] {
  const lines = [header, ...rows];
  const widths = header.map((_, column) =>
    Math.max(...lines.map((line) => (line[column] ?? '').length)),
  );
  return lines.map((line) =>
    line
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}

/** Names, the first few of many. */
export function listed(names: readonly string[]): string {
  const rest = names.length - MAX_NAMES;
  const first = names.slice(0, MAX_NAMES).join(', ');
  return rest > 0 ? `${first} and ${rest} more` : first;
}

/** A named value; null leaves it out. */
export type Fact = readonly [name: string, value: string | null];

/** A line for each fact, indented; the values begin behind `width` characters. */
export function factLines(facts: readonly Fact[], width: number): string[] {
  return facts.flatMap(([name, value]) =>
    value === null ? [] : [`  ${`${name}:`.padEnd(width)}${value}`],
  );
}
