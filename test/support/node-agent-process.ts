/** Hosts one node agent, as the command line would, configured by its environment. */
import { runActors } from '../../lib/actor/run-actors.ts';
import { definition } from '../../services/node-agent/node-agent-actor.ts';

try {
  process.exitCode = await runActors([definition], process.env);
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 78;
}
