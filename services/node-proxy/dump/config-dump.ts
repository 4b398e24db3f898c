import { readFile } from 'node:fs/promises';
import { installedPath } from '../../../lib/files/installation.ts';
import type { CertificateDump } from '../../../lib/identity/certificate-records.ts';
import type { ConnectionRecord } from '../../../workers/listener/protocol/connections.ts';
import type { NodeProxyConfig } from '../config.ts';
import type { ServedPod } from '../pods/served-pod.ts';
import type { DumpSection } from '../state-thread/protocol.ts';
import { workloadStateTexts } from './connections.ts';

/** Sources of a config dump. */
export interface ConfigDumpSources {
  readonly config: NodeProxyConfig;
  /** Yields sorted JSON objects with commas between them, some in each text. */
  state(section: DumpSection): AsyncIterable<string>;
  certificates(): readonly CertificateDump[];
  pods(): ReadonlyMap<string, ServedPod>;
  connections(): Promise<readonly ConnectionRecord[]>;
}

/** The sections of the mesh state, and their keys in the dump. */
const SECTIONS: readonly DumpSection[] = ['workloads', 'services', 'policies'];

/** The names on demand that are answered; left out where the whole mesh is followed, as upstream's tools expect. */
const NAMES = 'onDemandNames';

/**
 * Yields the whole state of the proxy as JSON, in the form that istioctl reads (docs/spec/observability.md §4.1). Texts are made as
 * the caller takes them, so a mesh of any size needs the memory of a few hundred objects.
 */
export async function* configDump(sources: ConfigDumpSources): AsyncGenerator<string> {
  yield '{';
  const sections = sources.config.onDemand === null ? SECTIONS : ([...SECTIONS, 'names'] as const);
  for (const section of sections) {
    yield `${JSON.stringify(section === 'names' ? NAMES : section)}:[`;
    let first = true;
    for await (const text of sources.state(section)) {
      yield first ? text : `,${text}`;
      first = false;
    }
    yield '],';
  }
  const version = { ...(await readVersion()), istioVersion: sources.config.istioVersion };
  const rest = {
    // Always empty: a service finds its endpoints whichever comes first.
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

/** Returns the version under upstream's keys; unknown values are `unknown`. */
async function readVersion(): Promise<object> {
  const text = await readFile(installedPath('package.json'), 'utf8');
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
