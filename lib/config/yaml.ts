import { createRequire } from 'node:module';
import { programPath } from '../files/installation.ts';
import type * as Yaml from './yaml-library.ts';

/** Returns the YAML library. It is loaded with the first text: it takes 2 MB, and most processes are given none. */
export function yaml(): typeof Yaml {
  return createRequire(import.meta.url)(programPath('lib/config/yaml-library.ts')) as typeof Yaml;
}
