/** A process that hosts node-proxy, as the `weft` command would, steered by its environment. */
import { fileURLToPath } from 'node:url';
import { runActors } from '../../lib/actor/run-actors.ts';
import { definition } from '../../services/node-proxy/node-proxy-actor.ts';
import { NodeProxy } from '../../services/node-proxy/node-proxy.ts';

const mortal = fileURLToPath(new URL('./mortal-listener.worker.ts', import.meta.url));
const entry = process.env['LISTENER_DIES_WITH'] === undefined ? undefined : mortal;

try {
  process.exitCode = await runActors(
    [{ ...definition, create: (config) => new NodeProxy(config as never, entry) }],
    process.env,
  );
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 78;
}
