import { createRequire } from 'node:module';
import type * as Yaml from 'yaml';

/** Returns the YAML library. It is loaded with the first text: it takes 2 MB, and most processes are given none. */
export function yaml(): typeof Yaml {
  return createRequire(import.meta.url)('yaml') as typeof Yaml;
}
