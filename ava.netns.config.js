/** Tests that need root, network namespaces and netfilter. Names, ports and folders are each file's own, and most of them wait. */
export default {
  files: ['test/netns/**/*.test.ts'],
  extensions: ['ts'],
  workerThreads: false,
  concurrency: 3,
  timeout: '300s',
};
