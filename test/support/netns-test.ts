/** Declares tests that need network namespaces. Without namespaces they are skipped and counted as skipped. */
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { removeLeftovers } from './leftovers.ts';
import { netnsUnavailable } from './netns-kit.ts';

/** Declares a test; tests of one file run one after another, in order. */
export type NetnsTest = (
  title: string,
  body: (t: ExecutionContext) => Promise<void> | void,
) => void;

/** The reason for skipping the tests of this file; null when they run. */
export const skipReason: string | null = netnsUnavailable();

if (skipReason === null) removeLeftovers();
else if (process.env['WEFT_REQUIRE_NETNS'] === '1') {
  // Continuous integration has namespaces; a skip there is a failure.
  throw new Error(`network namespaces are required here: ${skipReason}`);
} else process.stderr.write(`\nSKIPPED, NOT RUN: all tests of this file: ${skipReason}\n`);

/** Declares a serial test that needs network namespaces. */
export const netnsTest: NetnsTest = (title, body) => {
  if (skipReason === null) test.serial(title, body);
  else test.serial.skip(title, body);
};
