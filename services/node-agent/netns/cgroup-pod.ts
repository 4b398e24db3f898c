/** Finds the pod that a process belongs to in the names of its control groups (docs/spec/cni.md §3.6). Pure. */

/** `…pod<uid>…/…<container id>`: kubelet with cgroupfs or systemd, containerd, CRI-O, Docker, cgroups of version 1 and 2. */
const POD_PATH =
  /[^0-9A-Za-z]pod([0-9a-f]{8})[^0-9A-Za-z]([0-9a-f]{4})[^0-9A-Za-z]([0-9a-f]{4})[^0-9A-Za-z]([0-9a-f]{4})[^0-9A-Za-z]([0-9a-f]{12})[^0-9A-Za-z](?:.*[^0-9A-Za-z])?([0-9a-f]{64})$/;

/**
 * Returns the uid of the pod in the text of `/proc/<pid>/cgroup`; null for a process that belongs to none, or whose lines name
 * different pods or containers.
 */
export function podOfCgroups(text: string): string | null {
  let found: string | null = null;
  for (const line of text.split('\n')) {
    const path = line.slice(line.indexOf(':', line.indexOf(':') + 1) + 1).replace(/\.scope$/, '');
    const match = POD_PATH.exec(path);
    if (match === null) continue;
    const parts = match.slice(1);
    const named = parts.join('-');
    if (found !== null && found !== named) return null;
    found = named;
  }
  return found === null ? null : found.slice(0, found.lastIndexOf('-'));
}
