/** Helm, built from its Go module, and what it makes of the chart. */
import { execFile } from 'node:child_process';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { parseAllDocuments } from 'yaml';
import { present } from '../../../lib/errors/assert.ts';
import { buildGoProgram } from '../../support/go-program.ts';
import type { GoProgram } from '../../support/go-program.ts';
import { makeScratch } from '../../support/leftovers.ts';
import type { TestObject } from './cluster.ts';
import { definitionFiles } from './programs.ts';

const run = promisify(execFile);
const BUILD_TIMEOUT_MS = 900_000;
const MAX_OUTPUT_BYTES = 16 * 1024 * 1024;

/** The folder of the chart. */
export const CHART = new URL('../../../infra/helm/weft', import.meta.url).pathname;
/** The rendering that `kubectl apply -f` takes. */
export const MANIFESTS = new URL('../../../infra/kubernetes/weft.yaml', import.meta.url);

const HEADER = `# The chart infra/helm/weft with its default values and the namespace, for kubectl alone (docs/kubernetes.md).
# Made by node test/kubernetes/render-chart.ts; test/kubernetes/chart.test.ts compares.
`;

/** Builds Helm where it is not built yet. */
export function helmProgram(): Promise<GoProgram> {
  return buildGoProgram({
    name: 'helm',
    folder: new URL('../helm/', import.meta.url).pathname,
    package: 'helm.sh/helm/v3/cmd/helm',
    cache: 'kubernetes',
    ldflags: '-s -w',
    timeoutMs: BUILD_TIMEOUT_MS,
  });
}

/**
 * The chart as Helm renders it, for a namespace and values, with `options` of `helm template`. Rejects with Helm's words when it
 * refuses the values.
 */
export async function renderChart(
  helm: string,
  namespace: string,
  values: Readonly<Record<string, unknown>> = {},
  options: readonly string[] = [],
): Promise<string> {
  const folder = await makeScratch('helm');
  try {
    // JSON is YAML.
    await writeFile(join(folder, 'values.yaml'), JSON.stringify(values));
    const args = ['template', 'weft', CHART, '--namespace', namespace, '--kube-version', '1.34'];
    const given = [...options, '--values', join(folder, 'values.yaml')];
    const { stdout } = await run(helm, [...args, ...given], {
      maxBuffer: MAX_OUTPUT_BYTES,
      env: { HOME: folder },
    });
    return stdout;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The text of `infra/kubernetes/weft.yaml`. What Helm does at an event is not in it: kubectl has no events. */
export async function renderManifests(helm: string): Promise<string> {
  const values = { namespace: { create: true } };
  return HEADER + (await renderChart(helm, 'istio-system', values, ['--no-hooks']));
}

/** The chart's definitions of resources, which Helm creates where they are missing. */
export const DEFINITIONS_FILE = new URL(
  '../../../infra/helm/weft/crds/istio.yaml',
  import.meta.url,
);

/** Resources that Weft enforces. An API server refuses others, so that nobody takes them for enforced. */
const ENFORCED = new Set([
  'authorizationpolicies.security.istio.io',
  'peerauthentications.security.istio.io',
  'serviceentries.networking.istio.io',
  'workloadentries.networking.istio.io',
]);
const ORIGIN = `# From kubernetes/customresourcedefinitions.gen.yaml of the Go module istio.io/api, under the licence beside this file. Made by
# node test/kubernetes/render-chart.ts; test/kubernetes/chart.test.ts compares.
`;

/** The text of the chart's definitions. */
export async function renderDefinitions(): Promise<string> {
  const files = await definitionFiles();
  const file = files.find((path) => path.includes('istio.io/api'));
  const text = await readFile(present(file, 'the module defines resources'), 'utf8');
  const kept = text
    .split(/^---\n/m)
    .filter((document) => ENFORCED.has(/^ {2}name: (\S+)$/m.exec(document)?.[1] ?? ''));
  return ORIGIN + kept.map((document) => `---\n${document}`).join('');
}

/** The objects of a rendering. */
export function objectsOf(rendered: string): readonly TestObject[] {
  return parseAllDocuments(rendered)
    .map((document) => {
      const fault = document.errors[0] ?? document.warnings[0];
      if (fault !== undefined) throw fault;
      return document.toJS() as TestObject | null;
    })
    .filter((object) => object !== null);
}
