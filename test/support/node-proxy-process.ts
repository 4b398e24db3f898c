/** Hosts node-proxy, as the `weft` command would, configured by its environment. `TEST_HOT` replaces `hot` of its configuration. */
import { fileURLToPath } from 'node:url';
import { runActors } from '../../lib/actor/run-actors.ts';
import { nodeProxyConfig } from '../../services/node-proxy/config.ts';
import type { NodeProxyConfig } from '../../services/node-proxy/config.ts';
import { NodeProxy, definition } from '../../services/node-proxy/node-proxy-actor.ts';

const mortal = fileURLToPath(new URL('./mortal-listener.worker.ts', import.meta.url));
const entry = process.env['LISTENER_DIES_WITH'] === undefined ? undefined : mortal;
const hot = process.env['TEST_HOT'];

const config = {
  variables: nodeProxyConfig.variables,
  parse(environment: NodeJS.ProcessEnv): NodeProxyConfig {
    const parsed = nodeProxyConfig.parse(environment);
    return hot === undefined
      ? parsed
      : { ...parsed, hot: JSON.parse(hot) as NodeProxyConfig['hot'] };
  },
};

try {
  process.exitCode = await runActors(
    [{ ...definition, config, create: (parsed) => new NodeProxy(parsed as never, entry) }],
    process.env,
  );
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 78;
}
