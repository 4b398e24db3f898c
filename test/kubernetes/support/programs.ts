/** A real API server and etcd, built from their Go modules, and the definitions of Istio's resources. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { buildGoProgram, goFailure, runGo } from '../../support/go-program.ts';
import type { GoProgram } from '../../support/go-program.ts';

/** The version that the module in `../programs` pins. */
const KUBERNETES_VERSION = '1.34.4';
/** A cold build takes four minutes on two idle cores, and more on busy ones. */
const BUILD_TIMEOUT_MS = 900_000;

const [MAJOR, MINOR] = KUBERNETES_VERSION.split('.');
const VERSION = 'k8s.io/component-base/version';
const LDFLAGS = `-s -w -X ${VERSION}.gitVersion=v${KUBERNETES_VERSION} -X ${VERSION}.gitMajor=${MAJOR} -X ${VERSION}.gitMinor=${MINOR}`;

/** Paths of the programs. */
export interface KubernetesPrograms {
  readonly etcd: string;
  readonly apiServer: string;
  /** Files of CustomResourceDefinitions: Istio's and the Gateway API's. */
  readonly definitions: readonly string[];
}

/** Builds a program of Kubernetes from a package that the module in `../programs` requires, or from a folder in it. */
export function kubernetesProgram(name: string, source: string): Promise<GoProgram> {
  return buildGoProgram({
    name,
    folder: new URL('../programs/', import.meta.url).pathname,
    package: source,
    cache: 'kubernetes',
    ldflags: LDFLAGS,
    timeoutMs: BUILD_TIMEOUT_MS,
  });
}

/** Builds what is not built yet. `missing` says why there is no API server. */
export async function kubernetesPrograms(): Promise<
  KubernetesPrograms | { readonly missing: string }
> {
  const built = [];
  // One after another: each uses all processors.
  for (const name of ['etcd', 'kube-apiserver']) {
    const program = await kubernetesProgram(name, name);
    if ('missing' in program) return program;
    built.push(program.path);
  }
  try {
    const [etcd = '', apiServer = ''] = built;
    return { etcd, apiServer, definitions: await definitionFiles() };
  } catch (error) {
    return { missing: goFailure('the definitions of resources', error) };
  }
}

/** Paths of the files that define Istio's resources and the Gateway API's, from their modules. */
export async function definitionFiles(): Promise<string[]> {
  const folder = new URL('../crds/', import.meta.url).pathname;
  const modules = ['istio.io/api', 'sigs.k8s.io/gateway-api'];
  const output = await runGo(['mod', 'download', '-json', ...modules], folder, BUILD_TIMEOUT_MS);
  const dirs = [...output.matchAll(/"Dir": "([^"]+)"/g)].map((match) => match[1] ?? '');
  const files: string[] = [];
  for (const dir of dirs) {
    if (dir.includes('istio.io/api')) {
      files.push(join(dir, 'kubernetes/customresourcedefinitions.gen.yaml'));
      continue;
    }
    const standard = join(dir, 'config/crd/standard');
    const names = await readdir(standard);
    const wanted = names.filter((name) => name.startsWith('gateway.networking.k8s.io_gateway'));
    files.push(...wanted.map((name) => join(standard, name)));
  }
  return files;
}
