import { processEnvironment } from '../../lib/config/env.ts';

/**
 * The environment of an actor that a test starts: `variables`, the search path, and Node's compile cache. Without the cache each
 * start compiles all code again.
 */
export function bareEnvironment(variables: Readonly<Record<string, string>>): NodeJS.ProcessEnv {
  const { PATH, NODE_COMPILE_CACHE } = processEnvironment();
  return { PATH, NODE_COMPILE_CACHE, ...variables };
}
