import './test/support/built.ts';

/** Tests of the carry's C++ under sanitizers and fuzzers: need g++, OpenSSL's headers and, for the fuzzers, clang. */
export default {
  files: ['test/native/**/*.test.ts'],
  extensions: ['ts'],
  workerThreads: false,
  concurrency: 1,
  serial: true,
  timeout: '200s',
};
