import { homedir } from 'node:os';
import { join } from 'node:path';
import { processEnvironment } from '../../lib/config/env.ts';

/** Folder of what tests build or fetch and keep between runs. */
export const CACHE = join(
  processEnvironment()['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'),
  'weft',
);
