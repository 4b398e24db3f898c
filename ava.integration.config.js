/** Tests that start processes, Redis, TLS and gRPC servers; one process per file. */
export default {
  files: ['test/integration/**/*.test.ts'],
  extensions: ['ts'],
  workerThreads: false,
  concurrency: 4,
  timeout: '240s',
};
