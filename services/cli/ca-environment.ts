/** Opens the CA's state for `weft ca`: that of the environment where the CA runs, or of a local mesh. */
import { processEnvironment } from '../../lib/config/env.ts';
import { systemClock } from '../../lib/clock/clock.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { createLogger } from '../../lib/log/logger.ts';
import type * as Operations from '../ca/operations.ts';
import type { CaStores } from '../ca/stores.ts';
import { actorEnv } from '../local-mesh/actor-env.ts';
import { parseRole } from '../local-mesh/roles.ts';
import { openMesh } from './running-mesh.ts';

/** The CA's configuration and stores, and what can be done with them. The owner closes it. */
export interface OpenedCa extends Operations.OpenedState {
  readonly operations: typeof Operations;
}

/** Variables that say where a CA's state is; one of them in the environment tells that the CA runs there. */
const OF_CA = /^(?:WEFT_CA_\w+|WEFT_SOURCE|WEFT_STATE_DIR|ROOT_CA_DIR)$/;

/** Whether the environment is that of a CA. */
export function isEnvironmentOfCa(): boolean {
  return Object.keys(processEnvironment()).some((name) => OF_CA.test(name));
}

/**
 * Opens the state of the CA. Variables of the CA in the environment decide; without them it is the CA of a local
 * mesh. Throws CONFIG_INVALID for variables that the CA would refuse.
 */
export async function openCa(mesh: string | undefined): Promise<OpenedCa> {
  const operations = await import('../ca/operations.ts');
  const own = processEnvironment();
  const log = createLogger(
    { actor: 'cli', level: 'error' },
    { write: (line) => process.stderr.write(line) },
  );
  const environment = isEnvironmentOfCa() && mesh === undefined ? own : await meshEnvironment(mesh);
  return { operations, ...(await operations.openState(environment, { clock: systemClock, log })) };
}

/** Throws CONFIG_INVALID for a CA whose key comes from another authority: it follows the files by itself. */
export function requireOwnRoot({ plugged }: CaStores): void {
  if (plugged === null) return;
  throw new MeshError(
    'CONFIG_INVALID',
    `the signing certificate is plugged in from ${plugged.where}: replace its files, and the CA reads them by itself`,
  );
}

async function meshEnvironment(
  mesh: string | undefined,
): Promise<Readonly<Record<string, string>>> {
  const { paths, plan } = await openMesh(mesh);
  return actorEnv(parseRole('ca', plan), plan, paths);
}
