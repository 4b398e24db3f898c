import type { Command } from 'commander';
import { systemClock } from '../../../lib/clock/clock.ts';
import { meshOption, outputOption, write, writeJson } from '../output.ts';
import type { CommonOptions } from '../output.ts';
import { parseDestination, parsePod } from '../references.ts';
import { openMesh } from '../running-mesh.ts';

interface ExplainOptions extends CommonOptions {
  readonly from: string;
  readonly to: string;
}

/** Adds `weft policy`. */
export function register(program: Command): void {
  program
    .command('policy')
    .description('explain policy decisions')
    .command('explain')
    .description(
      'tell whether a connection would be allowed, by which policy and rule, and its path',
    )
    .requiredOption('--from <namespace/pod>', 'the pod that connects')
    .requiredOption('--to <namespace/name:port>', 'pod or service, and port, it connects to')
    .addOption(meshOption())
    .addOption(outputOption())
    .action(explain);
}

async function explain(options: ExplainOptions): Promise<void> {
  const from = parsePod('--from', options.from);
  const to = parseDestination('--to', options.to);
  const { paths } = await openMesh(options.mesh);
  const [{ withMeshBus }, { askExplain, explainLines }] = await Promise.all([
    import('../mesh-bus.ts'),
    import('../explain.ts'),
  ]);
  const request = { from: { namespace: from.namespace, pod: from.name }, to };
  const result = await withMeshBus(paths, (bus) => askExplain(bus, request, systemClock));
  if (options.output === 'json') await writeJson(result);
  else await write(`${explainLines(request, result).join('\n')}\n`);
}
