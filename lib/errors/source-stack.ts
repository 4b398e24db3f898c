import { readFileSync } from 'node:fs';
import { SourceMap } from 'node:module';
import type { SourceMapPayload, SourceOrigin } from 'node:module';

/** A place in a file of a build, as V8 writes it into a stack. */
const BUILT_PLACE = /(file:\/\/[^\s()]+\.js):(\d+):(\d+)/g;

/**
 * Returns the stack of an error, whose places name the sources that a build (infra/build.ts) was made of; undefined for any other value. It reads the source maps at once,
 * so it is for errors that end a process. A place without a source map stays as it is.
 */
export function sourceStack(error: unknown): string | undefined {
  if (!(error instanceof Error) || error.stack === undefined) return undefined;
  const maps = new Map<string, SourceMap | null>();
  return error.stack.replaceAll(BUILT_PLACE, (place, url: string, line: string, column: string) => {
    const map = maps.get(url) ?? mapOf(url);
    maps.set(url, map);
    const found = map?.findOrigin(Number(line), Number(column)) ?? {};
    const { fileName, lineNumber, columnNumber } = found as Partial<SourceOrigin>;
    if (fileName === undefined) return place;
    return `${new URL(fileName, url).href}:${lineNumber}:${columnNumber}`;
  });
}

function mapOf(url: string): SourceMap | null {
  try {
    const text = readFileSync(new URL(`${url}.map`), 'utf8');
    return new SourceMap(JSON.parse(text) as SourceMapPayload);
  } catch {
    // The stack is of use without it, too.
    return null;
  }
}
