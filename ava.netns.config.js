import './test/support/built.ts';
import { longestFirst } from './test/support/longest-first.ts';

/** Tests that need root, network namespaces and netfilter. Names, ports and folders are each file's own, and most of them wait. */
export default {
  files: ['test/netns/**/*.test.ts'],
  extensions: ['ts'],
  workerThreads: false,
  concurrency: 3,
  sortTestFiles: longestFirst([
    'mesh/lasting.',
    'mesh/default.',
    'mesh/certificates.',
    'mesh/soak.',
    'netns/listener.',
    'netns/same-node.',
    'netns/node-proxy.',
    'netns/dns.',
  ]),
  timeout: '300s',
};
