/** Judges a cluster before an installation. Pure. */
import type { ClusterFacts, DefinitionFact, NodeFact } from './facts.ts';
import { failed, judged, ok, warning } from './line.ts';
import type { CheckLine } from './line.ts';
import { rightText } from './rights.ts';

/** The oldest version that the chart installs on (`kubeVersion` of Chart.yaml). */
const OLDEST_MINOR = 30;
/** The oldest kernel that Node supports. */
const OLDEST_KERNEL = [4, 18] as const;
const ENFORCE = 'pod-security.kubernetes.io/enforce';
/** Most names in a line. */
const MAX_NAMES = 5;

/** The lines about the API server. */
export function serverLines({ version }: ClusterFacts): readonly CheckLine[] {
  const about = 'kubernetes';
  return judged(about, version, (text) => {
    const minor = Number(/^v1\.(\d+)/.exec(text)?.[1] ?? Number.NaN);
    if (minor >= OLDEST_MINOR) return [ok(about, `the API server is ${text}`)];
    const why = `the API server is ${text}, and the chart needs v1.${OLDEST_MINOR}`;
    return [failed(about, why, 'upgrade the cluster')];
  });
}

/** The lines about nodes and their network. */
export function nodeLines({ nodes, cilium }: ClusterFacts): readonly CheckLine[] {
  const about = 'nodes';
  return [
    ...judged(about, nodes, judgeNodes),
    ...judged(about, cilium, (settings) => {
      if (settings === null) return [ok(about, 'no Cilium, which needs settings of its own')];
      return ciliumLines(about, settings);
    }),
  ];
}

function judgeNodes(nodes: readonly NodeFact[]): readonly CheckLine[] {
  const about = 'nodes';
  const linux = nodes.filter(({ os }) => os === 'linux');
  if (linux.length === 0) return [failed(about, 'there is no Linux node', 'add one')];
  const old = linux.filter(({ kernel }) => isOld(kernel));
  const minimum = OLDEST_KERNEL.join('.');
  if (old.length > 0) {
    const names = listed(old.map(({ name, kernel }) => `${name} (${kernel})`));
    return [failed(about, `kernels before ${minimum}: ${names}`, 'upgrade these nodes')];
  }
  return [
    ok(about, `${linux.length} Linux nodes, with kernels of ${minimum} or newer`),
    warning(
      about,
      'the modules of a kernel cannot be seen from outside its node',
      'each agent looks for them; after the installation, weft check and weft doctor name missing ones',
    ),
  ];
}

function isOld(kernel: string): boolean {
  const [major = 0, minor = 0] = kernel.split('.').map((text) => Number.parseInt(text, 10));
  return major < OLDEST_KERNEL[0] || (major === OLDEST_KERNEL[0] && minor < OLDEST_KERNEL[1]);
}

function ciliumLines(
  about: string,
  settings: Readonly<Record<string, string>>,
): readonly CheckLine[] {
  const lines: CheckLine[] = [];
  if (settings['cni-exclusive'] !== 'false') {
    lines.push(
      failed(
        about,
        'Cilium removes other CNI plugins',
        "set cni.exclusive=false in Cilium's chart",
      ),
    );
  }
  const sockets =
    settings['bpf-lb-sock'] === 'true' || settings['kube-proxy-replacement'] === 'true';
  if (sockets && settings['bpf-lb-sock-hostns-only'] !== 'true') {
    lines.push(
      failed(
        about,
        "Cilium translates services' addresses inside pods, before the mesh sees them",
        "set socketLB.hostNamespaceOnly=true in Cilium's chart",
      ),
    );
  }
  return lines.length > 0 ? lines : [ok(about, 'Cilium leaves plugins and services to the mesh')];
}

/** The lines about the user's rights to install. */
export function installRightLines({ missingToInstall }: ClusterFacts): readonly CheckLine[] {
  const about = 'permissions';
  return judged(about, missingToInstall, (missing) =>
    missing.length === 0
      ? [ok(about, 'you may create every kind of object of the chart')]
      : [
          failed(
            about,
            `you may not: ${missing.map(rightText).join(', ')}`,
            'install with an account that may, such as one with the ClusterRole cluster-admin',
          ),
        ],
  );
}

/** The lines about definitions of resources. */
export function definitionLines(
  { definitions, gatewayApi }: ClusterFacts,
  installed: boolean,
): readonly CheckLine[] {
  const about = 'definitions';
  return [
    ...judged(about, definitions, (list) => judgeDefinitions(list, installed)),
    ...judged(about, gatewayApi, (served) => [
      ok(
        about,
        served
          ? 'the Gateway API is served'
          : 'the Gateway API is not served: waypoints and gateways wait until it is',
      ),
    ]),
  ];
}

function judgeDefinitions(
  list: readonly DefinitionFact[],
  installed: boolean,
): readonly CheckLine[] {
  const about = 'definitions';
  const absent = list.filter(({ served }) => served === null).map(({ name }) => name);
  const old = list
    .filter(({ served }) => served !== null && !served.includes('v1'))
    .map(({ name }) => name);
  const lines: CheckLine[] = [];
  if (old.length > 0) {
    const why = `these are served without version v1: ${old.join(', ')}`;
    lines.push(
      failed(about, why, 'kubectl replace -f infra/helm/weft/crds, where no other mesh owns them'),
    );
  }
  if (absent.length > 0 && installed) {
    const why = `missing: ${absent.join(', ')}`;
    lines.push(failed(about, why, 'kubectl create -f infra/helm/weft/crds'));
  }
  if (lines.length > 0) return lines;
  if (absent.length === list.length) return [ok(about, "none of Istio's; the chart brings them")];
  const rest = absent.length === 0 ? '' : '; the chart brings those that are missing';
  return [
    ok(about, `${list.length - absent.length} of ${list.length} are there with version v1${rest}`),
  ];
}

/** The lines about the release's namespace. */
export function namespaceLines({ namespace, namespaceLabels }: ClusterFacts): readonly CheckLine[] {
  const about = 'namespace';
  return judged(about, namespaceLabels, (labels) => {
    if (labels === null)
      return [ok(about, `${namespace} is not there; helm makes it with --create-namespace`)];
    const level = labels[ENFORCE];
    if (level === undefined || level === 'privileged') {
      return [ok(about, `${namespace} lets in pods that mount folders of their node`)];
    }
    return [
      failed(
        about,
        `${namespace} enforces the Pod Security level ${level}, which refuses Weft's node pods`,
        `kubectl label namespace ${namespace} --overwrite ${ENFORCE}=privileged`,
      ),
    ];
  });
}

/** Names, the first few of many. */
export function listed(names: readonly string[]): string {
  const rest = names.length - MAX_NAMES;
  const first = names.slice(0, MAX_NAMES).join(', ');
  return rest > 0 ? `${first} and ${rest} more` : first;
}
