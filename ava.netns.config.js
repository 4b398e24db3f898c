/** Tests that need root, network namespaces and netfilter; one after another. */
export default {
  files: ['test/netns/**/*.test.ts'],
  extensions: ['ts'],
  workerThreads: false,
  concurrency: 1,
  serial: true,
  timeout: '300s',
};
