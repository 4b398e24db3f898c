/** What is done to the namespaces of pods before anything is measured. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { BenchPod } from './mesh.ts';
import { inNamespace } from './process.ts';

/**
 * A generator that closes first keeps each of its ports for a minute: after some 25,000 connections finding a free one
 * takes longer than the connection does. So ports are taken again after a second.
 */
export async function sparePorts(namespaces: readonly string[]): Promise<void> {
  for (const netns of namespaces) {
    await inNamespace(netns, 'sysctl', '-qw', 'net.ipv4.tcp_tw_reuse=1');
  }
}

/** Gives a pod outside the mesh the rules of an enrolled one. */
export async function copyRedirection(
  enrolled: BenchPod,
  pod: BenchPod,
  directory: string,
): Promise<void> {
  const rules = await inNamespace(enrolled.netns, 'iptables-save');
  if (!rules.includes('-j REDIRECT')) {
    throw new Error('iptables-save does not show the redirection of an enrolled pod');
  }
  const file = join(directory, 'redirection');
  await writeFile(file, rules);
  await inNamespace(pod.netns, 'iptables-restore', file);
}

/** Leaves alone what a redirected pod sends to one address: its relay cannot mark what is its own. */
export async function letThrough(
  pod: BenchPod,
  to: { readonly ip: string; readonly port: number },
): Promise<void> {
  const rule = ['-p', 'tcp', '-d', to.ip, '--dport', String(to.port), '-j', 'ACCEPT'];
  await inNamespace(pod.netns, 'iptables', '-t', 'nat', '-I', 'ISTIO_OUTPUT', '1', ...rule);
}
