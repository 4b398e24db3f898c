/** Judges a cluster before an installation. Pure. */
import { listed } from '../text-table.ts';
import type { ClusterFacts, DefinitionFact, NodeFact } from './facts.ts';
import { failed, judged, ok, warning } from './line.ts';
import type { CheckLine, Verdict } from './line.ts';
import { rightText } from './rights.ts';

/** The oldest version that the chart installs on (`kubeVersion` of Chart.yaml). */
const OLDEST_MINOR = 30;
/** The oldest kernel that Node supports. */
const OLDEST_KERNEL = [4, 18] as const;
const ENFORCE = 'pod-security.kubernetes.io/enforce';

/** The lines about the API server. */
export function serverLines({ version }: ClusterFacts): readonly CheckLine[] {
  return judged('kubernetes', version, (text) => {
    const minor = Number(/^v1\.(\d+)/.exec(text)?.[1] ?? Number.NaN);
    if (minor >= OLDEST_MINOR) return [ok(`the API server is ${text}`)];
    const why = `the API server is ${text}, and the chart needs v1.${OLDEST_MINOR}`;
    return [failed(why, 'upgrade the cluster')];
  });
}

/** The lines about nodes and their network. */
export function nodeLines({ nodes, cilium }: ClusterFacts): readonly CheckLine[] {
  return [
    ...judged('nodes', nodes, judgeNodes),
    ...judged('nodes', cilium, (settings) => {
      if (settings === null) return [ok('no Cilium, which needs settings of its own')];
      return judgeCilium(settings);
    }),
  ];
}

function judgeNodes(nodes: readonly NodeFact[]): readonly Verdict[] {
  const linux = nodes.filter(({ os }) => os === 'linux');
  if (linux.length === 0) return [failed('there is no Linux node', 'add one')];
  const old = linux.filter(({ kernel }) => isOld(kernel));
  const minimum = OLDEST_KERNEL.join('.');
  if (old.length > 0) {
    const names = listed(old.map(({ name, kernel }) => `${name} (${kernel})`));
    return [failed(`kernels before ${minimum}: ${names}`, 'upgrade these nodes')];
  }
  return [
    ok(`${linux.length} Linux nodes, with kernels of ${minimum} or newer`),
    warning(
      'the modules of a kernel cannot be seen from outside its node',
      'each agent looks for them; after the installation, weft check and weft doctor name missing ones',
    ),
  ];
}

function isOld(kernel: string): boolean {
  const [major = 0, minor = 0] = kernel.split('.').map((text) => Number.parseInt(text, 10));
  return major < OLDEST_KERNEL[0] || (major === OLDEST_KERNEL[0] && minor < OLDEST_KERNEL[1]);
}

function judgeCilium(settings: Readonly<Record<string, string>>): readonly Verdict[] {
  const lines: Verdict[] = [];
  if (settings['cni-exclusive'] !== 'false') {
    lines.push(
      failed('Cilium removes other CNI plugins', "set cni.exclusive=false in Cilium's chart"),
    );
  }
  const sockets =
    settings['bpf-lb-sock'] === 'true' || settings['kube-proxy-replacement'] === 'true';
  if (sockets && settings['bpf-lb-sock-hostns-only'] !== 'true') {
    lines.push(
      failed(
        "Cilium translates services' addresses inside pods, before the mesh sees them",
        "set socketLB.hostNamespaceOnly=true in Cilium's chart",
      ),
    );
  }
  return lines.length > 0 ? lines : [ok('Cilium leaves plugins and services to the mesh')];
}

/** The lines about the user's rights to install. */
export function installRightLines({ missingToInstall }: ClusterFacts): readonly CheckLine[] {
  return judged('permissions', missingToInstall, (missing) =>
    missing.length === 0
      ? [ok('you may create every kind of object of the chart')]
      : [
          failed(
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
  return [
    ...judged('definitions', definitions, (list) => judgeDefinitions(list, installed)),
    ...judged('definitions', gatewayApi, (served) => [
      ok(
        served
          ? 'the Gateway API is served'
          : 'the Gateway API is not served: waypoints and gateways wait until it is',
      ),
    ]),
  ];
}

function judgeDefinitions(list: readonly DefinitionFact[], installed: boolean): readonly Verdict[] {
  const absent = list.filter(({ served }) => served === null).map(({ name }) => name);
  const old = list
    .filter(({ served }) => served !== null && !served.includes('v1'))
    .map(({ name }) => name);
  const lines: Verdict[] = [];
  if (old.length > 0) {
    const why = `these are served without version v1: ${old.join(', ')}`;
    lines.push(
      failed(why, 'kubectl replace -f infra/helm/weft/crds, where no other mesh owns them'),
    );
  }
  if (absent.length > 0 && installed) {
    const why = `missing: ${absent.join(', ')}`;
    lines.push(failed(why, 'kubectl create -f infra/helm/weft/crds'));
  }
  if (lines.length > 0) return lines;
  if (absent.length === list.length) return [ok("none of Istio's; the chart brings them")];
  const rest = absent.length === 0 ? '' : '; the chart brings those that are missing';
  return [ok(`${list.length - absent.length} of ${list.length} are there with version v1${rest}`)];
}

/** The lines about the release's namespace. */
export function namespaceLines({ namespace, namespaceLabels }: ClusterFacts): readonly CheckLine[] {
  return judged('namespace', namespaceLabels, (labels) => {
    if (labels === null)
      return [ok(`${namespace} is not there; helm makes it with --create-namespace`)];
    const level = labels[ENFORCE];
    if (level === undefined || level === 'privileged') {
      return [ok(`${namespace} lets in pods that mount folders of their node`)];
    }
    return [
      failed(
        `${namespace} enforces the Pod Security level ${level}, which refuses Weft's node pods`,
        `kubectl label namespace ${namespace} --overwrite ${ENFORCE}=privileged`,
      ),
    ];
  });
}
