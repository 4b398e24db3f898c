/** A local mesh as commands read it: actors by their unix sockets, state from Redis. */
import type { Scope, TableName } from '../../lib/bus/contract.ts';
import { systemClock } from '../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { enrolmentSchema } from '../../lib/state/enrolment.ts';
import { askEnrolments, askPods, localServers } from '../local-mesh/mesh-client.ts';
import type { Mesh, Rows } from './mesh.ts';
import type { RunningMesh } from './running-mesh.ts';

/** Makes the view of a running mesh. */
export function localMesh(local: RunningMesh): Mesh {
  const { paths, plan } = local;
  const servers = localServers(paths);
  const fromTables = async <Name extends TableName>(
    names: readonly Name[],
    scope: Scope,
  ): Promise<Record<Name, Rows>> => {
    const { readTable, withMeshBus } = await import('./mesh-bus.ts');
    return withMeshBus(paths, async (bus) => {
      const read: [Name, Rows][] = [];
      for (const name of names) read.push([name, await readTable(bus, name, scope)]);
      return Object.fromEntries(read) as Record<Name, Rows>;
    });
  };
  return {
    local,
    nodes: plan.nodes.map(({ name }) => name),
    hasAgents: true,
    servers,
    async pods(namespaces) {
      const all = await askPods(paths);
      return namespaces === undefined
        ? all
        : all.filter(({ namespace }) => namespaces.includes(namespace));
    },
    async enrolments(node) {
      try {
        return await askEnrolments(servers, node);
      } catch (error) {
        // While the agent is away, its table tells.
        const { enrolments } = await fromTables(['enrolments'], { node }).catch(
          (second: unknown) => {
            const why = `${errorText(error)}; ${errorText(second)}`;
            throw new MeshError('STATE_UNAVAILABLE', why, { cause: error });
          },
        );
        return [...enrolments.values()].map((row) =>
          enrolmentSchema.parse(JSON.parse(Buffer.from(row).toString('utf8'))),
        );
      }
    },
    tables: (names) => fromTables(names, 'mesh'),
    async queues() {
      const nodes = plan.nodes.map(({ name }) => ({ node: name }));
      const { withMeshBus } = await import('./mesh-bus.ts');
      return {
        lines: await withMeshBus(paths, (bus) => bus.queueCounts(['mesh', ...nodes])),
        warnings: [],
      };
    },
    async explain(request) {
      const { askExplain } = await import('./explain.ts');
      const { withMeshBus } = await import('./mesh-bus.ts');
      return withMeshBus(paths, (bus) => askExplain(bus, request, systemClock));
    },
  };
}
