import './test/support/built.ts';
import { longestFirst } from './test/support/longest-first.ts';

/** Tests that start processes, Redis, TLS and gRPC servers; one process per file. */
export default {
  files: ['test/integration/**/*.test.ts'],
  extensions: ['ts'],
  workerThreads: false,
  concurrency: 4,
  sortTestFiles: longestFirst([
    'identity/rotation.',
    'identity/certificates.',
    'bus/cluster',
    'xds-ingester/process.',
    'policy-evaluator/evaluator.',
    'cli/usage.',
  ]),
  timeout: '240s',
};
