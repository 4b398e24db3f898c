import type { Command } from 'commander';
import { outputOption, readsMesh, writeResult } from '../output.ts';
import type { CommonOptions } from '../output.ts';
import { parseDestination, parsePod } from '../references.ts';
import { withMesh } from '../open-mesh.ts';

interface ExplainOptions extends CommonOptions {
  readonly from: string;
  readonly to: string;
}

/** Adds `weft policy`. */
export function register(policy: Command): void {
  readsMesh(policy.command('explain'))
    .description(
      'tell whether a connection would be allowed, by which policy and rule, and its path',
    )
    .requiredOption('--from <namespace/pod>', 'the pod that connects')
    .requiredOption('--to <namespace/name:port>', 'pod or service, and port, it connects to')
    .addOption(outputOption())
    .action(explain);
}

async function explain(options: ExplainOptions): Promise<void> {
  const from = parsePod('--from', options.from);
  const to = parseDestination('--to', options.to);
  const request = { from: { namespace: from.namespace, pod: from.name }, to };
  const result = await withMesh(options, (mesh) => mesh.explain(request));
  const { explainLines } = await import('../explain.ts');
  await writeResult(options, result, explainLines(request, result));
}
