import './test/support/built.ts';

/** Tests of the CNI plugin with the reference programs of CNI: need root, network namespaces, and Go for those programs. */
export default {
  files: ['test/cni/**/*.test.ts'],
  extensions: ['ts'],
  workerThreads: false,
  concurrency: 1,
  serial: true,
  // A file that builds shows no progress.
  timeout: '270s',
};
