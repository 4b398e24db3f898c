import { rule } from '../rule.ts';
import type { Specification } from '../rule.ts';

/** The control plane: objects to resources. Its other sections belong to other specifications or to later work. */
export const istiodAmbient: Specification = {
  file: 'istiod-ambient.md',
  title: 'Control plane for ambient',
  rules: [
    rule('1.1', 'pods: identity, names, owners, tunnel, locality', {
      deviates: 'mapping-deviations',
    }),
    rule('1.2', 'which services a workload serves, by which ports', {
      deviates: 'mapping-deviations',
    }),
    rule('1.3', 'EndpointSlices, WorkloadEntries, inline endpoints, network gateways', {
      deviates: 'mapping-deviations',
    }),
    rule('1.4', 'Services: addresses, ports, load balancing, families'),
    rule('1.5', 'ServiceEntries: hosts, addresses, visibility, duplicates', {
      deviates: 'mapping-deviations',
    }),
    rule('1.6', 'waypoints: lookup, traffic, namespaces, canaries, conditions'),
    rule('1.7', 'the effects of a MeshConfig', { deviates: 'mapping-deviations' }),
    rule('2.1', 'which AuthorizationPolicies reach a node', { deviates: 'mapping-deviations' }),
    rule('2.2', 'rules, clauses, matches; what layer 4 cannot see', {
      deviates: 'mapping-deviations',
    }),
    rule('2.3', 'PeerAuthentications: modes, levels, ports', { deviates: 'mapping-deviations' }),
    rule('2.4', 'the policies that a workload lists', { deviates: 'mapping-deviations' }),
  ],
};
