/** What commands print. Standard output carries results only; progress and errors go to standard error. */
import { Option } from 'commander';

/** `-o json` of a command. */
export interface OutputOption {
  readonly output?: 'json' | 'table';
}

/** The `-o` option. */
export function outputOption(): Option {
  return new Option('-o, --output <format>', 'json, or a table for people')
    .choices(['json', 'table'])
    .default('table');
}

/** The `--mesh` option, with which several meshes live side by side. */
export function meshOption(): Option {
  return new Option('--mesh <name>', 'the mesh meant (environment: WEFT_MESH)');
}

/** Writes to standard output and waits until it is taken. A reader that went away is not an error. */
export function print(text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(text, (error) => {
      if (error === null || error === undefined || (error as NodeJS.ErrnoException).code === 'EPIPE') {
        resolve();
      } else reject(error);
    });
  });
}

/** Writes a value as JSON. */
export function printJson(value: unknown): Promise<void> {
  return print(`${JSON.stringify(value, null, 2)}\n`);
}

/** Writes one line to standard error. */
export function tell(line: string): void {
  process.stderr.write(`${line}\n`);
}

/** Rows as a table with aligned columns; `-` stands for what is empty. */
export function renderTable(headers: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [headers, ...rows].map((row) => row.map((cell) => (cell === '' ? '-' : cell)));
  const widths = headers.map((_, column) =>
    Math.max(...lines.map((line) => (line[column] ?? '').length)),
  );
  return lines
    .map((line) => line.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('   ').trimEnd())
    .map((line) => `${line}\n`)
    .join('');
}

/** 1,234,567 bytes as `1.2 MB`. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1_000 && unit < units.length - 1) {
    value /= 1_000;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit] ?? ''}`;
}

/** Seconds as `3d4h`, `2h5m`, `1m20s` or `9s`. */
export function formatSeconds(seconds: number): string {
  const parts: [number, string][] = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3_600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'm'],
    [Math.floor(seconds) % 60, 's'],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  const shown = first === -1 ? parts.slice(3) : parts.slice(first, first + 2);
  return shown.map(([value, unit]) => `${value}${unit}`).join('');
}
