/** The resource types of the workload API (docs/spec/control.md §2). */
export const ADDRESS_TYPE = 'type.googleapis.com/istio.workload.Address';
/** See {@link ADDRESS_TYPE}. */
export const AUTHORIZATION_TYPE = 'type.googleapis.com/istio.security.Authorization';

/** A resource type of the workload API. */
export type ResourceType = typeof ADDRESS_TYPE | typeof AUTHORIZATION_TYPE;

/** Path of the delta discovery method. */
export const DELTA_METHOD =
  '/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources';
