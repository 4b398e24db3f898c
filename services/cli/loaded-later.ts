/**
 * Files that no actor or command loads at its start, as paths from the root. The compile cache must hold them too. For a file
 * that it lacks, a thread loads the type stripper (30 MB), and the cache in an image cannot grow later.
 */
export const LOADED_LATER = [
  'lib/actor/host-config.ts',
  'lib/actor/run-actors.ts',
  'lib/otlp/otlp-export.ts',
  'lib/profile/pprof.ts',
  'services/ca/operations.ts',
  'services/cli/cluster/cluster-logs.ts',
  'services/cli/cluster/cluster-mesh.ts',
  'services/cli/cluster/cluster-status.ts',
  'services/cli/config-file.ts',
  'services/cli/explain.ts',
  'services/cli/mesh-bus.ts',
  'services/control-plane/manifests/manifests.worker.ts',
  'services/control-plane/store/store.worker.ts',
  'services/node-agent/docker/docker-pods.ts',
  'services/node-agent/docker/held-containers.ts',
  'services/node-proxy/state-thread/local-state.ts',
  'services/node-proxy/state-thread/state-service.ts',
  'services/node-proxy/state-thread/state.worker.ts',
  'workers/listener/listener.worker.ts',
  'workers/signing/signing.worker.ts',
] as const;

/** The subset that the thread pool loads by path; each of these has its own entry in the cache. */
export const REQUIRED = [
  'services/control-plane/manifests/manifests.worker.ts',
  'workers/listener/listener.worker.ts',
  'workers/signing/signing.worker.ts',
] as const;
