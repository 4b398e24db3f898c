/** Runs the pairs written in TypeScript: a bare `node:http2` CONNECT pair, and a bare `node:tls` relay pair. */
import type { PairCertificate } from '../lib/certificate.ts';
import { serve } from '../lib/process.ts';
import type { Background } from '../lib/process.ts';
import type { Forward, RelayOptions } from '../programs/forward.ts';

/** The programs, by the name of the pair. */
const PROGRAMS = {
  http2: new URL('../programs/http2-side.ts', import.meta.url).pathname,
  tls: new URL('../programs/tls-side.ts', import.meta.url).pathname,
} as const;

/** Starts one side of a pair, in one thread. */
export function nodeSide(
  kind: keyof typeof PROGRAMS,
  netns: string,
  side: 'client' | 'server',
  certificate: PairCertificate,
  forwards: readonly Forward[],
): Background {
  const options: RelayOptions = {
    side,
    certificateFile: certificate.both,
    rootFile: certificate.root,
    forwards,
  };
  return serve(netns, process.execPath, PROGRAMS[kind], JSON.stringify(options));
}
