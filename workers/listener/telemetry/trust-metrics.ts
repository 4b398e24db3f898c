import type { PeerTrust, TrustReporter } from '../../../lib/hbone/peer-trust.ts';
import type { MetricSample } from '../protocol/control.ts';

/** Counters of revocation and distrust, per reporter, with Istio's names where it has them (docs/spec/observability.md §2). */
export function trustSamples({ counters, tracked }: PeerTrust): MetricSample[] {
  return [
    ...byReporter(
      'istio_crl_policy_rejections_total',
      'Connections refused or ended because a certificate of the peer is revoked (unstable)',
      counters.rejections,
    ),
    ...byReporter(
      'istio_crl_untracked_connections_total',
      'Tunnels that later revocations cannot be held against (unstable)',
      counters.untracked,
    ),
    ...byReporter(
      'weft_hbone_distrusted_tunnels_total',
      'Tunnels that ended because their peer leads to no trusted root any more',
      counters.distrusted,
    ),
    {
      name: 'weft_hbone_tunnels_watched',
      kind: 'gauge',
      help: 'Tunnels, both ways, whose peers are held against changes of lists and roots',
      labels: [],
      value: tracked,
    },
  ];
}

function byReporter(
  name: string,
  help: string,
  counts: Readonly<Record<TrustReporter, number>>,
): MetricSample[] {
  return (['source', 'destination'] as const).map((reporter) => ({
    name,
    kind: 'counter',
    help,
    labels: [['reporter', reporter]],
    value: counts[reporter],
  }));
}
