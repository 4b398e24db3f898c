import { once } from 'node:events';
import { connect } from 'node:net';
import type { Command } from 'commander';
import { processEnvironment } from '../../../lib/config/env.ts';
import { parseEndpoint } from '../../../lib/config/fields.ts';
import type { Endpoint } from '../../../lib/config/fields.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Proof } from '../../node-agent/proof/node-proof.ts';
import { isCode } from '../../../lib/kubernetes/status.ts';
import { askCertificates, askStatus } from '../../local-mesh/mesh-client.ts';
import { askJson } from '../../local-mesh/unix-http.ts';
import type { HttpServerPlace } from '../../local-mesh/unix-http.ts';
import { certificateFindings } from '../certificate-findings.ts';
import { EXIT_FAILED } from '../failure.ts';
import { chosenNodes } from '../mesh.ts';
import type { Mesh } from '../mesh.ts';
import { withMesh } from '../open-mesh.ts';
import { outputOption, readsMesh, write, writeResult } from '../output.ts';
import type { CommonOptions } from '../output.ts';

interface DoctorOptions extends CommonOptions {
  readonly agent?: string;
  readonly ca?: string;
  readonly cut?: boolean;
}

/** A node agent to ask. */
interface Agent {
  readonly node: string | null;
  socket(): Promise<HttpServerPlace>;
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
/** States in which this CA or an external one issues certificates. */
const CA_SERVES: ReadonlySet<string> = new Set(['ready', 'external']);

/** Adds `weft doctor`. */
export function register(command: Command): void {
  readsMesh(command)
    .option('--node <node>', 'only this node')
    .option(
      '--agent <address>',
      "admin address of one node agent (default: WEFT_ADMIN_ADDRESS in the agent's own container)",
    )
    .option('--ca <address>', 'connect to this CA too (default: CA_ADDRESS)')
    .option('--cut', 'cut off the pods that are open because their rules cannot be written')
    .addOption(outputOption())
    .action(doctor);
}

async function doctor(options: DoctorOptions): Promise<void> {
  const address = options.agent ?? processEnvironment()['WEFT_ADMIN_ADDRESS'];
  const { mesh, kubeconfig, context, namespace } = options;
  const named = [mesh, kubeconfig, context, namespace].some((option) => option !== undefined);
  if (address === undefined || named) {
    await withMesh(options, (found) => examine(options, found, agentsOf(found, options.node)));
    return;
  }
  const endpoint = parseEndpoint(address);
  const socket = endpoint.kind === 'unix' ? endpoint.path : endpoint;
  await examine(options, null, [{ node: options.node ?? null, socket: async () => socket }]);
}

function agentsOf(mesh: Mesh, node: string | undefined): readonly Agent[] {
  return chosenNodes(mesh, node).map((name) => ({
    node: name,
    socket: () => mesh.servers.one('node-agent', name),
  }));
}

async function examine(
  options: DoctorOptions,
  mesh: Mesh | null,
  agents: readonly Agent[],
): Promise<void> {
  if (options.cut === true) {
    for (const { node, socket } of agents) {
      const question = { socket: await socket(), method: 'POST', path: '/node-agent/cut' } as const;
      const { cut } = await askJson<{ cut: number }>(question);
      await write(`${node === null ? '' : `${node}: `}${cut} open pods are being cut off\n`);
    }
    return;
  }
  const [ca, ...found] = await Promise.all([
    diagnoseCa(options.ca, mesh),
    ...agents.map((agent) => diagnose(agent, mesh)),
  ]);
  const diagnoses = ca.findings.length === 0 ? found : [ca, ...found];
  await writeResult(options, diagnoses, diagnoses.flatMap(lines));
  if (diagnoses.some(({ findings }) => findings.length > 0)) process.exitCode = EXIT_FAILED;
}

async function diagnose({ node, socket }: Agent, mesh: Mesh | null): Promise<Diagnosis> {
  const findings: Finding[] = [];
  let proof: Proof | null = null;
  if (mesh?.hasAgents !== false) {
    try {
      const path = '/node-agent/proof';
      proof = await askJson<Proof>({ socket: await socket(), path, timeoutMs: PROOF_TIMEOUT_MS });
      findings.push(...proof.findings);
    } catch (error) {
      findings.push(away('node agent unreachable', error));
    }
  }
  if (mesh !== null && node !== null) {
    try {
      const certificates = await askCertificates(mesh.servers, node);
      findings.push(...certificateFindings(certificates, Date.now()));
    } catch (error) {
      findings.push(away('node proxy unreachable', error));
    }
  }
  return { node: proof?.node ?? node ?? 'the node', pods: proof?.pods ?? null, findings };
}

/** The finding about a process that does not answer. Throws KUBERNETES_REFUSED: the user lacks a right, and the mesh is unknown. */
function away(cause: string, error: unknown): Finding {
  if (isCode(error, 'KUBERNETES_REFUSED')) throw error;
  return { pod: null, cause, detail: errorText(error) };
}

/** The state of a mesh's CA. */
async function stateOfCa(mesh: Mesh): Promise<string> {
  const { actors } =
    mesh.local === null
      ? await askJson<{ actors: readonly { name: string; state: string }[] }>({
          socket: await mesh.servers.one('ca', null),
          path: '/status',
        })
      : await askStatus(mesh.local.paths);
  return actors.find(({ name }) => name === 'ca')?.state ?? 'gone';
}

/** Looks whether the CA of a mesh runs, and whether one of an address takes connections. */
async function diagnoseCa(address: string | undefined, mesh: Mesh | null): Promise<Diagnosis> {
  const findings: Finding[] = [];
  const unreachable = (detail: string): void => {
    findings.push({ pod: null, cause: 'CA unreachable', detail });
  };
  // Where Istio enrols pods, the CA is Istio's.
  if (mesh?.hasAgents === true) {
    try {
      const state = await stateOfCa(mesh);
      if (!CA_SERVES.has(state)) unreachable(`the actor ca is ${state}`);
    } catch (error) {
      findings.push(away(mesh.local === null ? 'CA unreachable' : 'supervisor unreachable', error));
    }
  }
  const given = address ?? processEnvironment()['CA_ADDRESS'];
  if (given !== undefined) {
    const url = given.replace(/^https?:\/\//, '');
    await reach(parseEndpoint(url)).catch((error: unknown) =>
      unreachable(`${given}: ${errorText(error)}`),
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
