import { hostConfig } from '../../lib/actor/host-config.ts';
import { configInvalid } from '../../lib/config/define-config.ts';
import type { Environment } from '../../lib/config/env.ts';
import { unknownVariables } from '../../lib/config/unknown-variables.ts';
import { ACTORS, loadActor } from './actors.ts';
import { setsActors } from './inherited-env.ts';

/**
 * Refuses `WEFT_*` variables that no actor of the mesh reads: each actor gets only those it knows, so none
 * would notice. Throws CONFIG_INVALID that names them all. Without such variables no actor is loaded.
 */
export async function checkEnvironment(environment: Environment): Promise<void> {
  if (!setsActors(environment)) return;
  const definitions = await Promise.all(ACTORS.map(loadActor));
  const known = [hostConfig, ...definitions.map((definition) => definition.config)].flatMap(
    (spec) => Object.keys(spec.variables),
  );
  const problems = unknownVariables(environment, known);
  if (problems.length > 0) throw configInvalid(problems);
}
