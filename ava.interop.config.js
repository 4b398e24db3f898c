/** Other implementations against a whole mesh: needs root, network namespaces, and what each file names. */
export default {
  files: ['test/interop/**/*.test.ts'],
  extensions: ['ts'],
  workerThreads: false,
  concurrency: 1,
  serial: true,
  timeout: '400s',
};
