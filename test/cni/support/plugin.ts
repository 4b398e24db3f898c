/** Runs the built plugin as a container runtime does. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';

/** The plugin as infra/setup.sh builds it. */
export const PLUGIN_PATH = new URL(
  '../../../services/node-agent/cni/plugin/build/weft-cni',
  import.meta.url,
).pathname;

/** An end of the plugin. */
export interface PluginEnd {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** Standard output as JSON; null where there is none. */
  readonly answer: Readonly<Record<string, unknown>> | null;
}

/** Runs a command with this text on standard input. Nothing of the test's environment is passed. */
export async function runPlugin(
  environment: Readonly<Record<string, string>>,
  input: string,
  program = PLUGIN_PATH,
): Promise<PluginEnd> {
  const child = spawn(program, [], { env: environment, stdio: 'pipe' });
  // A plugin may end without reading.
  child.stdin.on('error', () => undefined);
  child.stdin.end(input);
  const [stdout, stderr, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'exit') as Promise<[number | null]>,
  ]);
  const answer = stdout === '' ? null : (JSON.parse(stdout) as Record<string, unknown>);
  return { code, stdout, stderr, answer };
}

/** The environment of an ADD for a pod of this name, `namespace/name`; without one for a container outside of Kubernetes. */
export function addEnvironment(
  pod: string | null,
  changes: Readonly<Record<string, string>> = {},
): Record<string, string> {
  const [namespace, name] = pod?.split('/') ?? [];
  return {
    CNI_COMMAND: 'ADD',
    CNI_CONTAINERID: 'container-1',
    CNI_NETNS: '/run/netns/none',
    CNI_IFNAME: 'eth0',
    CNI_PATH: '/nowhere',
    ...(pod === null
      ? {}
      : {
          CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=${namespace};K8S_POD_NAME=${name};K8S_POD_INFRA_CONTAINER_ID=c`,
        }),
    ...changes,
  };
}
