import './test/support/built.ts';

/** Tests against a real API server. AVA shares one with all files of a run, which needs threads. */
export default {
  files: ['test/kubernetes/**/*.test.ts'],
  extensions: ['ts'],
  workerThreads: true,
  concurrency: 3,
  timeout: '600s',
};
