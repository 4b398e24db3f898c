/** Rows of the specification in which Weft's control plane differs from upstream on purpose, or that no comparison shows yet, and why. */
export const DEVIATIONS: ReadonlyMap<string, string> = new Map([
  [
    '1.1.4',
    'the network label of the root namespace holds for the whole cluster, so it would change every other row',
  ],
  ['1.2.2', 'no comparison yet: it needs the uid that the API server gives the pod'],
  ['1.1.18', 'needs a waypoint that a controller deployed'],
  ['1.3.5', 'needs a second network'],
  ['1.3.6', 'multi-network is not supported yet'],
]);
