/** The export of telemetry as actors see it. */
import type { RegistryFamily } from '../metrics/registry.ts';
import type { ConnectionExports, ExportDrops, ExportedConnection } from './model.ts';

/** Returns the families of one source with their present values. */
export type FamilySource = () => Promise<readonly RegistryFamily[]>;

/** The export of a process. Nothing here waits for a collector. */
export interface TelemetryExport {
  /** The data that is wanted of connections; null = none. */
  readonly connections: ConnectionExports | null;
  /** Adds ended connections, and counts those that a thread had dropped before. What does not fit is dropped and counted. */
  add(connections: readonly ExportedConnection[], dropped: ExportDrops): void;
  /** Adds metrics under a scope of this name. */
  addMetrics(scope: string, collect: FamilySource): void;
  /** Returns the export's own counters. */
  families(): Promise<readonly RegistryFamily[]>;
}
