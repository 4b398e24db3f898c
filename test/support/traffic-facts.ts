import type { TrafficFacts } from '../../lib/metrics/traffic-labels.ts';
import { service, workload } from './workloads.ts';

const destinationWorkload = workload();
const destinationService = service();

/** Returns the facts of an inbound connection whose source, and so its label set, is different for each index. */
export function trafficFacts(index: number): TrafficFacts {
  const name = `w${index}`;
  return {
    reporter: 'destination',
    sourceWorkload: workload({ uid: name, workloadName: name, canonicalName: name }),
    sourceBaggage: null,
    sourceIdentity: `spiffe://cluster.local/ns/demo/sa/${name}`,
    destinationWorkload,
    destinationBaggage: null,
    destinationIdentity: null,
    destinationService,
    mutualTls: true,
  };
}
