/** Hosts one policy-evaluator, as the command line would, steered by its environment. */
import { runActors } from '../../lib/actor/run-actors.ts';
import { definition } from '../../services/policy-evaluator/policy-evaluator-actor.ts';

try {
  process.exitCode = await runActors([definition], process.env);
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 78;
}
