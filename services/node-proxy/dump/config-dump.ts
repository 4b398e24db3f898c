import { readFile } from 'node:fs/promises';
import type { CertificateDump } from '../../../lib/identity/certificate-records.ts';
import type { ConnectionRecord } from '../../../workers/listener/protocol.ts';
import type { NodeProxyConfig } from '../config.ts';
import type { ServedPod } from '../pods/served-pod.ts';
import type { DumpSection } from '../state-thread/protocol.ts';
import { dumpWorkloadState } from './connections.ts';

/** Where a config dump comes from. */
export interface ConfigDumpSources {
  readonly config: NodeProxyConfig;
  state(section: DumpSection): Promise<readonly unknown[]>;
  certificates(): readonly CertificateDump[];
  pods(): ReadonlyMap<string, ServedPod>;
  connections(): Promise<readonly ConnectionRecord[]>;
}

/** The whole state of the proxy, in the form istioctl reads (spec/observability.md §4.1). */
export async function configDump(sources: ConfigDumpSources): Promise<object> {
  const [workloads, services, policies, connections, version] = await Promise.all([
    sources.state('workloads'),
    sources.state('services'),
    sources.state('policies'),
    sources.connections(),
    readVersion(),
  ]);
  return {
    workloads: sortedBy(workloads, (object) => field(object, 'uid')),
    services: sortedBy(services, (object) => field(object, 'hostname')),
    policies: sortedBy(
      policies,
      (object) => `${field(object, 'namespace')}/${field(object, 'name')}`,
    ),
    // Endpoints of unknown services are not held apart: a service finds its endpoints whichever comes first.
    stagedServices: {},
    staticConfig: { workloads: [], policies: [], services: [] },
    version: { ...version, istioVersion: sources.config.istioVersion },
    config: sources.config,
    certificates: sources.certificates(),
    workloadState: dumpWorkloadState(sources.pods(), connections),
  };
}

/** Upstream's keys; what this build does not know is `unknown`. */
async function readVersion(): Promise<object> {
  const text = await readFile(new URL('../../../package.json', import.meta.url), 'utf8');
  return {
    version: field(JSON.parse(text), 'version'),
    gitRevision: 'unknown',
    rustVersion: `node ${process.version}`,
    buildProfile: 'release',
    buildStatus: 'unknown',
    cryptoProvider: `openssl ${process.versions.openssl}`,
  };
}

function sortedBy(objects: readonly unknown[], key: (object: unknown) => string): unknown[] {
  return objects
    .map((object) => ({ object, key: key(object) }))
    .sort((left, right) => (left.key < right.key ? -1 : left.key > right.key ? 1 : 0))
    .map(({ object }) => object);
}

function field(object: unknown, name: string): string {
  const value: unknown =
    typeof object === 'object' && object !== null ? Reflect.get(object, name) : undefined;
  return typeof value === 'string' ? value : '';
}
