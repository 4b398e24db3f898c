import { buildGoProgram } from '../../support/go-program.ts';
import type { GoProgram } from '../../support/go-program.ts';

const BUILD_TIMEOUT_MS = 120_000;

/** Builds the program of the clients, which uses only Go's own library. Does not throw when the machine lacks Go. */
export function buildPushClient(): Promise<GoProgram> {
  return buildGoProgram({
    name: 'push-client',
    folder: new URL('client/', import.meta.url).pathname,
    package: '.',
    cache: 'bench',
    timeoutMs: BUILD_TIMEOUT_MS,
  });
}
