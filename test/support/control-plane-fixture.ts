/** A process that hosts the control plane, steered by its environment; for tests that kill it. */
import { runActors } from '../../lib/actor/run-actors.ts';
import { definition } from '../../services/control-plane/control-plane-actor.ts';

process.exitCode = await runActors([definition], process.env);
