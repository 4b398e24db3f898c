/** Writes the packages that a program loaded to the file RECORD_MODULES when it ends. Preload it with `--import`. */
import { writeFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { isMainThread } from 'node:worker_threads';
import { processEnvironment } from '../../lib/config/env.ts';

const loaded = new Set<string>();
const PACKAGE = /\/node_modules\/((?:@[^/]+\/)?[^/]+)\//;

registerHooks({
  load(url, context, next) {
    const name = PACKAGE.exec(url)?.[1];
    if (name !== undefined) loaded.add(name);
    return next(url, context);
  },
});

const file = processEnvironment()['RECORD_MODULES'];
if (isMainThread && file !== undefined) {
  process.on('exit', () => writeFileSync(file, JSON.stringify([...loaded])));
}
