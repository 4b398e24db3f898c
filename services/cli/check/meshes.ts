/** Judges the other meshes of a cluster. Pure. */
import { PART_OF } from '../cluster/workloads.ts';
import type { Workload } from '../cluster/workloads.ts';
import type { ClusterFacts } from './facts.ts';
import { failed, judged, ok, warning } from './line.ts';
import type { CheckLine, Verdict } from './line.ts';

const ABOUT = 'meshes';
/** The account that Istio's node proxy runs under. */
const ZTUNNEL = 'ztunnel';

/** The lines for Weft alone. */
export function otherMeshLines({ namespace, workloads }: ClusterFacts): readonly CheckLine[] {
  return judged(ABOUT, workloads, (all) => {
    const lines: Verdict[] = [];
    const foreign = all.filter((one) => one.labels[PART_OF] !== 'weft');
    for (const one of foreign) {
      if (isZtunnel(one) || isIstioCni(one)) {
        lines.push(
          failed(
            `${placeOf(one)} enrols pods for Istio`,
            'remove it, or put Weft in the place of ztunnel (replaceZtunnel.enabled=true)',
          ),
        );
      } else if (isIstiod(one)) {
        lines.push(
          warning(
            `${placeOf(one)} publishes its roots as ConfigMap istio-ca-root-cert, as Weft's CA does`,
            'keep each namespace in one of the meshes, or share the Secret cacerts',
          ),
        );
      } else if (one.name === 'linkerd-destination') {
        lines.push(
          warning(`Linkerd runs in ${one.namespace}`, 'do not enrol pods with its sidecars'),
        );
      }
    }
    const twins = all.filter(
      (one) => one.name === 'weft-node-proxy' && one.namespace !== namespace && isWeft(one),
    );
    for (const one of twins) {
      lines.push(
        failed(
          `another release of Weft is in ${one.namespace}`,
          `check that one with --namespace ${one.namespace}; a cluster can have one`,
        ),
      );
    }
    return lines.length > 0 ? lines : [ok('no other mesh runs here')];
  });
}

/** The lines for Weft in the place of ztunnel. */
export function istioLines(facts: ClusterFacts): readonly CheckLine[] {
  const { namespace, workloads, ztunnelAccount } = facts;
  return [
    ...judged(ABOUT, workloads, (all) => [
      ...judgeIstiod(all.filter(isIstiod), namespace),
      ...(all.some(isIstioCni)
        ? [ok('istio-cni enrols pods')]
        : [failed('there is no istio-cni', "install Istio's chart cni with profile=ambient")]),
      ...all
        .filter(isZtunnel)
        .map((one) =>
          warning(
            `${placeOf(one)} is for ${one.desired} nodes`,
            'a node has one of both: see "In the place of ztunnel" in docs/kubernetes.md',
          ),
        ),
    ]),
    ...judged(ABOUT, ztunnelAccount, (there) => [
      there
        ? ok(`the account ${namespace}/${ZTUNNEL} is there`)
        : failed(
            `there is no account ${namespace}/${ZTUNNEL}, under which the proxy runs`,
            "install into the namespace of Istio's ztunnel, or keep its account",
          ),
    ]),
  ];
}

function judgeIstiod(found: readonly Workload[], namespace: string): readonly Verdict[] {
  if (found.length === 0) return [failed('there is no istiod', "install Istio's chart istiod")];
  return found.flatMap((istiod) => {
    const where = placeOf(istiod);
    const ambient = istiod.env['PILOT_ENABLE_AMBIENT'] === 'true';
    const trusted = (istiod.env['CA_TRUSTED_NODE_ACCOUNTS'] ?? '')
      .split(',')
      .map((text) => text.trim())
      .filter((text) => text !== '');
    const own = `${namespace}/${ZTUNNEL}`;
    return [
      ambient
        ? ok(`${where} serves ambient meshes`)
        : failed(`${where} does not serve ambient meshes`, "set profile=ambient in istiod's chart"),
      trusted.includes(own)
        ? ok(`${where} trusts the account ${own}`)
        : failed(
            `${where} trusts ${trusted.join(', ') || 'no account'}, and the release would run as ${own}`,
            `install into ${trusted[0]?.split('/')[0] ?? 'the namespace that it trusts'}, or set trustedZtunnelNamespace=${namespace} and trustedZtunnelName=${ZTUNNEL} in istiod's chart`,
          ),
    ];
  });
}

function isWeft({ labels }: Workload): boolean {
  return labels[PART_OF] === 'weft';
}

function isZtunnel(one: Workload): boolean {
  return one.kind === 'DaemonSet' && one.podLabels['app'] === ZTUNNEL && !isWeft(one);
}

function isIstioCni(one: Workload): boolean {
  return one.kind === 'DaemonSet' && one.podLabels['k8s-app'] === 'istio-cni-node';
}

function isIstiod(one: Workload): boolean {
  return one.kind === 'Deployment' && one.podLabels['app'] === 'istiod';
}

function placeOf({ kind, namespace, name }: Workload): string {
  return `${kind} ${namespace}/${name}`;
}
