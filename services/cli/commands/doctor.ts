import { once } from 'node:events';
import { connect } from 'node:net';
import type { Command } from 'commander';
import { processEnvironment } from '../../../lib/config/env.ts';
import { parseEndpoint } from '../../../lib/config/fields.ts';
import type { Endpoint } from '../../../lib/config/fields.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { UsageError } from '../../../lib/errors/usage-error.ts';
import type { Proof } from '../../node-agent/proof/node-proof.ts';
import { askCertificates, askStatus } from '../../local-mesh/mesh-client.ts';
import { adminSocket } from '../../local-mesh/mesh-paths.ts';
import type { MeshPaths } from '../../local-mesh/mesh-paths.ts';
import { askJson } from '../../local-mesh/unix-http.ts';
import type { HttpQuestion } from '../../local-mesh/unix-http.ts';
import { certificateFindings } from '../certificate-findings.ts';
import { EXIT_FAILED } from '../failure.ts';
import { meshOption, outputOption, write, writeJson } from '../output.ts';
import type { CommonOptions } from '../output.ts';
import { openMesh } from '../running-mesh.ts';

interface DoctorOptions extends CommonOptions {
  readonly node?: string;
  readonly agent?: string;
  readonly ca?: string;
  readonly cut?: boolean;
}

/** A node agent to ask. */
interface Agent {
  readonly node: string | null;
  readonly socket: HttpQuestion['socket'];
  /** Null where the agent's mesh is not a local one. */
  readonly paths: MeshPaths | null;
}

interface Finding {
  readonly pod: string | null;
  readonly cause: string;
  readonly detail: string;
}

/** The findings of a node; `pods` is null where its agent does not answer. */
interface Diagnosis {
  readonly node: string;
  readonly pods: number | null;
  readonly findings: readonly Finding[];
}

/** A canary of each pod that is not captured takes a second; four pods are read at a time. */
const PROOF_TIMEOUT_MS = 600_000;

const CONNECT_MS = 5_000;
/** States of the actor in which it issues certificates, or somebody else's does. */
const CA_SERVES: ReadonlySet<string> = new Set(['ready', 'external']);

/** Adds `weft doctor`. */
export function register(program: Command): void {
  program
    .command('doctor')
    .description('prove that every pod is in the mesh, and name what keeps one out')
    .option('--node <node>', 'only this node')
    .option(
      '--agent <address>',
      "admin address of one node agent (default: WEFT_ADMIN_ADDRESS in the agent's own container)",
    )
    .option('--ca <address>', 'connect to this CA too (default: CA_ADDRESS)')
    .option('--cut', 'cut off the pods that are open because their rules cannot be written')
    .addOption(meshOption())
    .addOption(outputOption())
    .action(doctor);
}

async function doctor(options: DoctorOptions): Promise<void> {
  const agents = await chosenAgents(options);
  if (options.cut === true) {
    for (const { node, socket } of agents) {
      const question = { socket, method: 'POST', path: '/node-agent/cut' } as const;
      const { cut } = await askJson<{ cut: number }>(question);
      await write(`${node === null ? '' : `${node}: `}${cut} open pods are being cut off\n`);
    }
    return;
  }
  const [ca, ...found] = await Promise.all([
    diagnoseCa(options.ca, agents[0]?.paths ?? null),
    ...agents.map(diagnose),
  ]);
  const diagnoses = ca.findings.length === 0 ? found : [ca, ...found];
  if (options.output === 'json') await writeJson(diagnoses);
  else await write(`${diagnoses.flatMap(lines).join('\n')}\n`);
  if (diagnoses.some(({ findings }) => findings.length > 0)) process.exitCode = EXIT_FAILED;
}

async function chosenAgents(options: DoctorOptions): Promise<readonly Agent[]> {
  const address = options.agent ?? processEnvironment()['WEFT_ADMIN_ADDRESS'];
  if (address !== undefined && options.mesh === undefined) {
    const endpoint = parseEndpoint(address);
    const socket = endpoint.kind === 'unix' ? endpoint.path : endpoint;
    return [{ node: options.node ?? null, socket, paths: null }];
  }
  const { paths, plan } = await openMesh(options.mesh);
  const names = plan.nodes.map(({ name }) => name);
  if (options.node !== undefined && !names.includes(options.node)) {
    throw new UsageError(`--node must be one of ${names.join(', ')}, got ${options.node}`);
  }
  return names
    .filter((name) => name === (options.node ?? name))
    .map((node) => ({ node, socket: adminSocket(paths, 'node-agent', node), paths }));
}

async function diagnose({ node, socket, paths }: Agent): Promise<Diagnosis> {
  const findings: Finding[] = [];
  let proof: Proof | null = null;
  try {
    const path = '/node-agent/proof';
    proof = await askJson<Proof>({ socket, path, timeoutMs: PROOF_TIMEOUT_MS });
    findings.push(...proof.findings);
  } catch (error) {
    findings.push({ pod: null, cause: 'node agent unreachable', detail: errorText(error) });
  }
  if (paths !== null && node !== null) {
    try {
      findings.push(...certificateFindings(await askCertificates(paths, node), Date.now()));
    } catch (error) {
      findings.push({ pod: null, cause: 'node proxy unreachable', detail: errorText(error) });
    }
  }
  return { node: proof?.node ?? node ?? 'the node', pods: proof?.pods ?? null, findings };
}

/** Looks whether the CA runs in a local mesh, and whether one of an address takes connections. */
async function diagnoseCa(
  address: string | undefined,
  paths: MeshPaths | null,
): Promise<Diagnosis> {
  const findings: Finding[] = [];
  const away = (detail: string): void => {
    findings.push({ pod: null, cause: 'CA unreachable', detail });
  };
  if (paths !== null) {
    try {
      const { actors } = await askStatus(paths);
      const state = actors.find(({ name }) => name === 'ca')?.state ?? 'gone';
      if (!CA_SERVES.has(state)) away(`the actor ca is ${state}`);
    } catch (error) {
      findings.push({ pod: null, cause: 'supervisor unreachable', detail: errorText(error) });
    }
  }
  const given = address ?? processEnvironment()['CA_ADDRESS'];
  if (given !== undefined) {
    const url = given.replace(/^https?:\/\//, '');
    await reach(parseEndpoint(url)).catch((error: unknown) =>
      away(`${given}: ${errorText(error)}`),
    );
  }
  return { node: 'mesh', pods: null, findings };
}

/** Connects once. Rejects with the network's error. */
async function reach(endpoint: Endpoint): Promise<void> {
  const socket =
    endpoint.kind === 'unix'
      ? connect(endpoint.path)
      : connect({ host: endpoint.host || 'localhost', port: endpoint.port });
  socket.setTimeout(CONNECT_MS, () => socket.destroy(new Error(`no answer in ${CONNECT_MS} ms`)));
  try {
    await once(socket, 'connect');
  } finally {
    socket.destroy();
  }
}

function lines({ node, pods, findings }: Diagnosis): readonly string[] {
  const found = findings.map(
    ({ pod, cause, detail }) => `${node}${pod === null ? '' : ` ${pod}`}: ${cause}: ${detail}`,
  );
  if (pods === null) return found;
  const judged = findings.length === 0 ? 'all right' : `${findings.length} findings`;
  return [...found, `${node}: ${pods} pods of the mesh, ${judged}`];
}
