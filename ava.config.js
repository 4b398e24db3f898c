import './test/support/built.ts';

/** Unit, contract and property tests: quick, in threads, no privileges. */
export default {
  files: [
    'test/unit/**/*.test.ts',
    'test/contract/**/*.test.ts',
    'test/property/**/*.test.ts',
    'test/tidy.test.ts',
  ],
  extensions: ['ts'],
  // Many wait for a certificate to expire or a peer to fall silent.
  concurrency: 4,
  timeout: '180s',
};
