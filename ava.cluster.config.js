import './test/support/built.ts';

/** Tests on a cluster of their own: need root, Go for Kubernetes, and a Docker daemon of their own for the image. */
export default {
  files: ['test/cluster/**/*.test.ts'],
  extensions: ['ts'],
  workerThreads: false,
  concurrency: 1,
  serial: true,
  // A file that builds shows no progress.
  timeout: '600s',
};
