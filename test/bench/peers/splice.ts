/** Runs a bare splice pump in C, the ceiling for a path that only moves bytes. */
import { join } from 'node:path';
import type { BenchPod } from '../lib/mesh.ts';
import { output, serveApart } from '../lib/process.ts';
import type { Background } from '../lib/process.ts';
import type { Forward } from '../programs/forward.ts';

const SOURCE = new URL('../programs/splice-pump.c', import.meta.url).pathname;

/** Compiles the pump into the directory and returns its path. */
export async function compilePump(directory: string): Promise<string> {
  const program = join(directory, 'splice-pump');
  await output('gcc', ['-O2', '-o', program, SOURCE]);
  return program;
}

/** Forwards connections redirected to a port to their original destination, marked so that they are not redirected again. */
export function redirectedTo(listen: number): Forward {
  return { listen, host: '0.0.0.0', port: 0 };
}

/**
 * Starts one pump in a namespace for all the given ports. It forwards a connection that was redirected on its way to one of
 * the pods from inside that pod, with the client's address.
 */
export function splicePump(
  netns: string,
  program: string,
  forwards: readonly Forward[],
  pods: readonly BenchPod[] = [],
): Background {
  const words = [
    ...forwards.flatMap(({ listen, host, port }) => [String(listen), host, String(port)]),
    ...pods.flatMap((pod) => ['inside', pod.ip, pod.netns]),
  ];
  return serveApart(netns, program, ...words);
}
