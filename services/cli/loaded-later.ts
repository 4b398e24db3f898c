/**
 * Files that no actor or command loads from the start, as paths from the root. The compile cache must hold them too: one file that
 * it lacks brings in what strips types, 30 MB in the thread that asks, and an image has no room to add it later.
 */
export const LOADED_LATER = [
  'lib/actor/host-config.ts',
  'lib/actor/run-actors.ts',
  'lib/otlp/otlp-export.ts',
  'lib/profile/pprof.ts',
  'services/cli/config-file.ts',
  'services/cli/explain.ts',
  'services/cli/mesh-bus.ts',
  'services/control-plane/manifests/manifests.worker.ts',
  'services/control-plane/store/store.worker.ts',
  'services/node-proxy/state-thread/state-service.ts',
  'services/node-proxy/state-thread/state.worker.ts',
  'workers/listener/listener.worker.ts',
] as const;

/** Of these, what the pool of threads loads by path: such a file has an entry of its own in the cache. */
export const REQUIRED = [
  'services/control-plane/manifests/manifests.worker.ts',
  'workers/listener/listener.worker.ts',
] as const;
