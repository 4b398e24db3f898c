import './test/support/built.ts';

/** Tests that bring Weft up in containers, on a Docker daemon of their own. */
export default {
  files: ['test/docker/**/*.test.ts'],
  extensions: ['ts'],
  workerThreads: false,
  concurrency: 1,
  serial: true,
  timeout: '600s',
};
