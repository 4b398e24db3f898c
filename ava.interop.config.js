import './test/support/built.ts';

/** Other implementations against a whole mesh: needs root, network namespaces, and what each file names. */
export default {
  files: ['test/interop/**/*.test.ts'],
  extensions: ['ts'],
  workerThreads: false,
  concurrency: 1,
  serial: true,
  // Longer than test/run.ts lets programs be built: a file that builds shows no progress.
  timeout: '500s',
};
