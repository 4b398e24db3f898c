import { readFile } from 'node:fs/promises';
import type { CertificateDump } from '../../../lib/identity/certificate-records.ts';
import type { ConnectionRecord } from '../../../workers/listener/protocol/connections.ts';
import type { NodeProxyConfig } from '../config.ts';
import type { ServedPod } from '../pods/served-pod.ts';
import type { DumpSection } from '../state-thread/protocol.ts';
import { workloadStateTexts } from './connections.ts';

/** Where a config dump comes from. */
export interface ConfigDumpSources {
  readonly config: NodeProxyConfig;
  /** JSON objects with commas between them, sorted, some in each text. */
  state(section: DumpSection): AsyncIterable<string>;
  certificates(): readonly CertificateDump[];
  pods(): ReadonlyMap<string, ServedPod>;
  connections(): Promise<readonly ConnectionRecord[]>;
}

/** What the whole mesh state is made of, and the keys it stands under. */
const SECTIONS: readonly DumpSection[] = ['workloads', 'services', 'policies'];

/**
 * The whole state of the proxy as JSON, in the form istioctl reads (docs/spec/observability.md §4.1), in texts that are made
 * as they are asked for: a mesh of any size needs the memory of a few hundred objects.
 */
export async function* configDump(sources: ConfigDumpSources): AsyncGenerator<string> {
  yield '{';
  for (const section of SECTIONS) {
    yield `${JSON.stringify(section)}:[`;
    let first = true;
    for await (const text of sources.state(section)) {
      yield first ? text : `,${text}`;
      first = false;
    }
    yield '],';
  }
  const version = { ...(await readVersion()), istioVersion: sources.config.istioVersion };
  const rest = {
    // Endpoints of unknown services are not held apart: a service finds its endpoints whichever comes first.
    stagedServices: {},
    staticConfig: { workloads: [], policies: [], services: [] },
    version,
    config: sources.config,
    certificates: [...sources.certificates()].sort((left, right) =>
      left.identity < right.identity ? -1 : 1,
    ),
  };
  yield `${JSON.stringify(rest).slice(1, -1)},"workloadState":`;
  yield* workloadStateTexts(sources.pods(), await sources.connections());
  yield '}\n';
}

/** Upstream's keys; what this build does not know is `unknown`. */
async function readVersion(): Promise<object> {
  const text = await readFile(new URL('../../../package.json', import.meta.url), 'utf8');
  const { version } = JSON.parse(text) as { readonly version?: unknown };
  return {
    version: typeof version === 'string' ? version : 'unknown',
    gitRevision: 'unknown',
    rustVersion: `node ${process.version}`,
    buildProfile: 'release',
    buildStatus: 'unknown',
    cryptoProvider: `openssl ${process.versions.openssl}`,
  };
}
