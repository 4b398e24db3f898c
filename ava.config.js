/** Unit, contract and property tests: quick, in threads, no privileges. */
export default {
  files: [
    'test/unit/**/*.test.ts',
    'test/contract/**/*.test.ts',
    'test/property/**/*.test.ts',
    'test/tidy.test.ts',
  ],
  extensions: ['ts'],
  timeout: '180s',
};
