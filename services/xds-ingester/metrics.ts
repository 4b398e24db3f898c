import type { MetricRegistry } from '../../lib/metrics/registry.ts';
import { OWNED_TABLES } from './mesh-state.ts';
import type { MeshState } from './mesh-state.ts';
import type { OnDemandMesh } from './on-demand/on-demand-mesh.ts';

/** Sources of the gauges, called at each scrape. */
export interface IngesterFacts {
  readonly state: MeshState;
  leading(): boolean;
  live(): boolean;
  /** Null while the whole mesh is followed. */
  readonly onDemand: Pick<OnDemandMesh, 'names' | 'refused'> | null;
}

/** Declares the ingester's own metrics. */
export function createIngesterMetrics(registry: MetricRegistry, facts: IngesterFacts): void {
  registry.gauge('weft_ingest_leading', '1 while this ingester writes', [], (gauge) =>
    gauge.set(facts.leading() ? 1 : 0),
  );
  registry.gauge('weft_ingest_live', '1 while a stream is open and answered', [], (gauge) =>
    gauge.set(facts.live() ? 1 : 0),
  );
  registry.gauge('weft_ingest_rows', 'Rows held in memory', ['table'], (gauge) => {
    for (const table of OWNED_TABLES) gauge.set({ table }, facts.state.tables[table].size);
  });
  registry.gauge('weft_ingest_unwritten_rows', 'Rows not in Redis yet', ['table'], (gauge) => {
    // A standby writes nothing: Redis is compared with its memory when it takes over.
    const leading = facts.leading();
    for (const table of OWNED_TABLES) {
      gauge.set({ table }, leading ? facts.state.tables[table].dirty : 0);
    }
  });
  const { onDemand } = facts;
  if (onDemand === null) return;
  registry.gauge('weft_ingest_names', 'Names subscribed on demand', ['state'], (gauge) => {
    const { size, unanswered } = onDemand.names;
    gauge.set({ state: 'answered' }, size - unanswered);
    gauge.set({ state: 'unanswered' }, unanswered);
  });
  registry.gauge('weft_ingest_names_refused', 'Requests for names beyond the limit', [], (gauge) =>
    gauge.set(onDemand.refused),
  );
}
