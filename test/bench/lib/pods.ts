/** Prepares the namespaces of pods before a measurement. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { BenchPod } from './mesh.ts';
import { inNamespace } from './process.ts';

/**
 * Lets closed ports be reused after a second. A generator that closes first otherwise keeps each port for a minute, and after
 * some 25,000 connections the search for a free one takes longer than the connection.
 */
export async function sparePorts(namespaces: readonly string[]): Promise<void> {
  for (const netns of namespaces) {
    await inNamespace(netns, 'sysctl', '-qw', 'net.ipv4.tcp_tw_reuse=1');
  }
}

/** Gives a pod outside the mesh the rules of an enrolled one, and the routes that return replies to a client's address. */
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
  await copyMarkedRoutes(enrolled, pod);
}

/** Copies the routing of marked packets: its rules and their tables. */
async function copyMarkedRoutes(enrolled: BenchPod, pod: BenchPod): Promise<void> {
  const rules = await inNamespace(enrolled.netns, 'ip', '-4', 'rule', 'show');
  const marked = [...rules.matchAll(/^(\d+):\s+(.* fwmark .* lookup (\d+))\s*$/gm)];
  if (marked.length === 0) throw new Error('ip rule does not show the routing of an enrolled pod');
  for (const [, priority = '', words = '', table = ''] of marked) {
    const routes = await inNamespace(enrolled.netns, 'ip', '-4', 'route', 'show', 'table', table);
    for (const route of routes.split('\n').filter((line) => line.trim() !== '')) {
      const copied = [...wordsOf(route), 'table', table];
      await inNamespace(pod.netns, 'ip', '-4', 'route', 'replace', ...copied);
    }
    await inNamespace(pod.netns, 'ip', '-4', 'rule', 'add', ...wordsOf(words), 'pref', priority);
  }
}

function wordsOf(line: string): string[] {
  return line.trim().split(/\s+/);
}

/** Exempts a redirected pod's traffic to one address: its relay cannot mark its own traffic. */
export async function letThrough(
  pod: BenchPod,
  to: { readonly ip: string; readonly port: number },
): Promise<void> {
  const rule = ['-p', 'tcp', '-d', to.ip, '--dport', String(to.port), '-j', 'ACCEPT'];
  await inNamespace(pod.netns, 'iptables', '-t', 'nat', '-I', 'ISTIO_OUTPUT', '1', ...rule);
}
