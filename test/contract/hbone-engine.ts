/** Defines the tests that every HBONE engine must pass. Each engine has a test file that calls {@link engineContract}. */
import type { TestFn } from 'ava';
import type { HboneEngine } from '../../lib/hbone/engine.ts';
import { greetings } from './hbone-greeting.ts';
import { handshakes } from './hbone-handshakes.ts';
import { lifetimes } from './hbone-lifetimes.ts';
import { malformed } from './hbone-malformed.ts';
import { nested } from './hbone-nested.ts';
import { ends, streams } from './hbone-streams.ts';
import { peerTrustContract } from './peer-trust.ts';

export function engineContract(test: TestFn, engine: HboneEngine): void {
  streams(test, engine);
  ends(test, engine);
  greetings(test, engine);
  handshakes(test, engine);
  lifetimes(test, engine);
  malformed(test, engine);
  peerTrustContract(test, engine);
  nested(test, engine);
}
