/**
 * Loads the addon with sanitizers where a process asks for the usual one, and leaves a line in the folder of the reports. A preloaded module
 * (`node --import`), which threads and children of Node inherit.
 */
import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { SANITIZED_ADDON, USUAL_ADDON } from './addon-paths.ts';

/** The folder is the query of this module's name: a process that drops unknown variables of the environment keeps it. */
const reports = decodeURIComponent(new URL(import.meta.url).search.slice(1));
const load = process.dlopen.bind(process);

process.dlopen = (module, filename, ...rest): void => {
  if (filename !== USUAL_ADDON) {
    load(module, filename, ...rest);
    return;
  }
  load(module, SANITIZED_ADDON, ...rest);
  appendFileSync(join(reports, 'loaded'), `${process.pid} ${process.argv[1] ?? ''}\n`);
};
