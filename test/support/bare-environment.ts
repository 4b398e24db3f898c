import { processEnvironment } from '../../lib/config/env.ts';

/** Names that a test's own environment hands on; the last four load sanitizers into every process (test/native/through-node.test.ts). */
const HANDED_ON = [
  'PATH',
  'NODE_COMPILE_CACHE',
  'NODE_OPTIONS',
  'LD_PRELOAD',
  'ASAN_OPTIONS',
  'UBSAN_OPTIONS',
] as const;

/**
 * The environment of an actor that a test starts from its sources: `variables`, the search path, and Node's compile cache. Without the cache each
 * start compiles all code again.
 */
export function bareEnvironment(variables: Readonly<Record<string, string>>): NodeJS.ProcessEnv {
  const own = processEnvironment();
  const handed = Object.fromEntries(HANDED_ON.map((name) => [name, own[name]]));
  return { ...handed, ...variables };
}
