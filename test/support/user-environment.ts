import { processEnvironment } from '../../lib/config/env.ts';

/** Variables for the tests alone. Weft refuses unknown ones that begin with WEFT_. */
const OF_TESTS: ReadonlySet<string> = new Set([
  'WEFT_CARRY_SECONDS',
  'WEFT_REQUIRE_GO',
  'WEFT_REQUIRE_NETNS',
  'WEFT_TEST_GENERATIONS',
  'WEFT_TEST_PODS',
  'WEFT_ZTUNNEL',
]);

/** The environment of the user who runs the tests, as `weft` may see it. */
export function userEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(
    Object.entries(processEnvironment()).filter(([name]) => !OF_TESTS.has(name)),
  );
}
