/** What actors see of the export of telemetry. */
import type { RegistryFamily } from '../metrics/registry.ts';
import type { ConnectionExports, ExportDrops, ExportedConnection } from './model.ts';

/** Gives the families of one source as they are now. */
export type FamilySource = () => Promise<readonly RegistryFamily[]>;

/** The export of a process, where one is configured. Nothing here waits for a collector. */
export interface TelemetryExport {
  /** What is wanted of connections; null = nothing. */
  readonly connections: ConnectionExports | null;
  /** Takes connections that ended; what does not fit is dropped and counted, as is what a thread had to drop before. */
  add(connections: readonly ExportedConnection[], dropped: ExportDrops): void;
  /** Adds metrics under a scope of this name. */
  addMetrics(scope: string, collect: FamilySource): void;
  /** The export's own counters. */
  families(): Promise<readonly RegistryFamily[]>;
}
