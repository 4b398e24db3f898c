/** Hosts the ingester in a process of its own, for tests that kill it. */
import { runActors } from '../../lib/actor/run-actors.ts';
import { definition } from '../../services/xds-ingester/xds-ingester-actor.ts';

try {
  process.exitCode = await runActors([definition], process.env);
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 78;
}
