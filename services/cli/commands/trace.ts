import type { Command } from 'commander';
import { systemClock } from '../../../lib/clock/clock.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { UsageError } from '../../../lib/errors/usage-error.ts';
import { askTraceable } from '../../local-mesh/mesh-client.ts';
import { fromEachNode } from '../mesh.ts';
import type { Mesh } from '../mesh.ts';
import { withMesh } from '../open-mesh.ts';
import { outputOption, readsMesh, warn, writeResult } from '../output.ts';
import type { CommonOptions } from '../output.ts';
import { parseDestination, parsePod } from '../references.ts';
import type { ObjectReference, PortReference } from '../references.ts';
import { findConnection } from '../trace/find.ts';
import type { TraceQuery, TracedConnection } from '../trace/find.ts';
import { probe } from '../trace/probe.ts';
import { traceLines, traceResult } from '../trace/render.ts';
import { enterPod, findPod, requirePod } from '../running-mesh.ts';
import type { RunningMesh } from '../running-mesh.ts';

interface TraceOptions extends CommonOptions {
  readonly probe?: boolean;
  readonly send?: string;
}

/** A probe's records appear within milliseconds; the end of its connection takes as long as the server does. */
const FIND_TIMEOUT_MS = 5_000;
const FIND_POLL_MS = 50;

const HELP = `
Follows the newest connection there is, a live one before those that ended lately. --probe makes one; --send has it say
something and wait for the answer, with \\r, \\n, \\t as in a shell's $'…'.`;

/** Adds `weft trace`. */
export function register(command: Command): void {
  readsMesh(command)
    .argument('<pod>', '<namespace>/<pod> that connects')
    .argument('<destination>', '<namespace>/<pod or service>:<port> it connects to')
    .option('--probe', 'make a connection from the pod and follow that')
    .option('--send <text>', 'text that the probe sends; it waits for an answer (implies --probe)')
    .addOption(outputOption())
    .addHelpText('after', HELP)
    .action(trace);
}

async function trace(pod: string, destination: string, options: TraceOptions): Promise<void> {
  const from = parsePod('the pod', pod);
  const to = parseDestination('the destination', destination);
  const found = await withMesh(options, (mesh) => traced(mesh, { from, to }, options));
  if (found === null) {
    throw new MeshError(
      'STATE_UNAVAILABLE',
      `no connection from ${pod} to ${destination} is open or ended lately; --probe makes one in a local mesh`,
    );
  }
  const result = traceResult(pod, destination, found);
  await writeResult(options, result, traceLines(result));
}

async function traced(
  mesh: Mesh,
  { from, to }: { readonly from: ObjectReference; readonly to: PortReference },
  options: TraceOptions,
): Promise<TracedConnection | null> {
  const pods = await mesh.pods([...new Set([from.namespace, to.namespace])]);
  const source = requirePod(pods, from);
  const query: TraceQuery = { from: source, to, toPod: findPod(pods, to), client: null };
  if (options.probe !== true && options.send === undefined) return look(mesh, query);
  if (mesh.local === null) {
    throw new UsageError(
      '--probe and --send need a local mesh; on a cluster, connect with kubectl exec',
    );
  }
  return probed(mesh, mesh.local, query, unescaped(options.send ?? ''));
}

/** Makes a connection, and reads the records of both proxies once it has ended. */
async function probed(
  mesh: Mesh,
  { paths }: RunningMesh,
  query: TraceQuery,
  text: string,
): Promise<TracedConnection | null> {
  const { from, to, toPod } = query;
  const enter = enterPod(paths, from, 'network');
  const host = toPod?.ip ?? serviceHost(to);
  const made = await probe(enter, { host, port: to.port, text });
  const own = { ...query, client: made.client };
  try {
    await lookUntil(mesh, own, (found) => found !== null);
  } finally {
    await made.end();
  }
  return lookUntil(mesh, own, (found) => found !== null && hasEnded(found));
}

function hasEnded({ source, destination }: TracedConnection): boolean {
  return source.record.end !== null && destination?.record.end !== null;
}

async function lookUntil(
  mesh: Mesh,
  query: TraceQuery,
  done: (found: TracedConnection | null) => boolean,
): Promise<TracedConnection | null> {
  const endMs = systemClock.monotonic() + FIND_TIMEOUT_MS;
  for (;;) {
    const found = await look(mesh, query);
    if (done(found) || systemClock.monotonic() >= endMs) return found;
    await systemClock.sleep(FIND_POLL_MS);
  }
}

async function look(mesh: Mesh, query: TraceQuery): Promise<TracedConnection | null> {
  const { lines, warnings } = await fromEachNode(mesh, 'the node proxy', async (node) =>
    (await askTraceable(mesh.servers, node)).map((record) => ({ node, record })),
  );
  for (const warning of warnings) warn(warning);
  return findConnection(query, lines);
}

/** A name in the pods' hosts files; the name of a service entry is a whole host name. */
function serviceHost({ namespace, name }: ObjectReference): string {
  return name.includes('.') ? name : `${name}.${namespace}.svc.cluster.local`;
}

function unescaped(text: string): string {
  const meanings: Readonly<Record<string, string>> = { r: '\r', n: '\n', t: '\t', '\\': '\\' };
  return text.replaceAll(/\\([rnt\\])/g, (_, letter: string) => meanings[letter] ?? letter);
}
