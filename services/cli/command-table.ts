/** The subcommands. Each has its own file, which is loaded only when it is called. */
import type { Command } from 'commander';

/** A module with the arguments, options and action of one subcommand. */
export interface CommandModule {
  register(command: Command): void;
}

/** A subcommand that is not loaded yet. */
export interface CommandEntry {
  /** For the list of commands, and for its own help. */
  readonly summary: string;
  readonly hidden?: boolean;
  load(): Promise<CommandModule>;
}

/** Subcommands in the order of `weft --help`. */
export const commands: Readonly<Record<string, CommandEntry>> = {
  up: {
    summary: 'bring up a local mesh: nodes and pods in network namespaces, every actor a process',
    load: () => import('./commands/up.ts'),
  },
  down: {
    summary: 'stop a local mesh and remove all it made; may be repeated',
    load: () => import('./commands/down.ts'),
  },
  status: {
    summary: 'nodes, actors and Redis of a mesh, and whether it is ready',
    load: () => import('./commands/status.ts'),
  },
  check: {
    summary: 'tell whether a cluster can have the mesh, or how an installed one does',
    load: () => import('./commands/check.ts'),
  },
  doctor: {
    summary: 'prove that every pod is in the mesh, and name what keeps one out',
    load: () => import('./commands/doctor.ts'),
  },
  upgrade: {
    summary: 'replace processes of a mesh by new ones, without a failed connection',
    load: () => import('./commands/upgrade.ts'),
  },
  get: {
    summary:
      'list pods, workloads, services, policies, connections, certificates, conditions and more',
    load: () => import('./commands/get.ts'),
  },
  exec: {
    summary: "run a command in a pod's namespaces",
    load: () => import('./commands/exec.ts'),
  },
  apply: {
    summary: 'create or change objects of a local mesh',
    load: () => import('./commands/apply.ts'),
  },
  delete: { summary: 'delete objects of a local mesh', load: () => import('./commands/delete.ts') },
  state: {
    summary: 'apply large removals that wait',
    load: () => import('./commands/state.ts'),
  },
  policy: { summary: 'explain policy decisions', load: () => import('./commands/policy.ts') },
  trace: {
    summary: 'follow a connection through the proxies of both ends',
    load: () => import('./commands/trace.ts'),
  },
  ca: {
    summary: "state, rotation and backup of the CA's root",
    load: () => import('./commands/ca.ts'),
  },
  env: {
    summary: 'the environment of one role of a mesh, as shell assignments',
    load: () => import('./commands/env.ts'),
  },
  run: {
    summary: 'host actors in this process until SIGTERM or SIGINT',
    load: () => import('./commands/run.ts'),
  },
  logs: {
    summary: 'print the logs of the actors; several are told apart by a prefix',
    load: () => import('./commands/logs.ts'),
  },
  'log-level': {
    summary: 'show or change the log levels of the node proxies',
    load: () => import('./commands/log-level.ts'),
  },
  'access-log': {
    summary: 'show or change which access lines the node proxies write',
    load: () => import('./commands/access-log.ts'),
  },
  sbom: {
    summary: 'list the npm and Debian packages of this installation as CycloneDX JSON',
    load: () => import('./commands/sbom.ts'),
  },
  prepare: {
    summary: 'write the files that a mesh of containers needs',
    hidden: true,
    load: () => import('./commands/prepare.ts'),
  },
  'supervise-containers': {
    summary: 'tell the mesh which containers are its pods, and answer for its actors',
    hidden: true,
    load: () => import('./commands/supervise-containers.ts'),
  },
  'container-exec': {
    summary: 'run a command in a container',
    hidden: true,
    load: () => import('./commands/container-exec.ts'),
  },
  sample: {
    summary: 'run the servers of a pod of the sample mesh',
    hidden: true,
    load: () => import('./commands/sample.ts'),
  },
};

/** Options before the subcommand whose value is the next argument. */
const WITH_VALUE: ReadonlySet<string> = new Set([
  '--mesh',
  '--kubeconfig',
  '--context',
  '--namespace',
  '-n',
]);

/** The subcommand that the arguments call or request help for; null when they name none. */
export function commandName(parameters: readonly string[]): string | null {
  let skip = false;
  for (const parameter of parameters) {
    if (skip || parameter === 'help') {
      skip = false;
      continue;
    }
    if (WITH_VALUE.has(parameter)) skip = true;
    else if (!parameter.startsWith('-')) return parameter;
  }
  return null;
}
