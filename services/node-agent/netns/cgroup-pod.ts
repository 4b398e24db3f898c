/** Finds the pod that a process belongs to in the names of its control groups (docs/spec/cni.md §3.6). Pure. */

/**
 * `…pod<uid>…/…<container id>`: kubelet with cgroupfs or systemd, containerd, CRI-O, Docker, cgroups of version 1 and 2. Groups may be
 * inside the container's: crun makes one for each, and so does a systemd in a container.
 */
const POD_PATH =
  /[^0-9A-Za-z]pod([0-9a-f]{32}|[0-9a-f]{8}(?:[^0-9A-Za-z][0-9a-f]{4}){3}[^0-9A-Za-z][0-9a-f]{12})[^0-9A-Za-z](?:.*[^0-9A-Za-z])?([0-9a-f]{64})(?:\.scope)?(?:\/.*)?$/;

/**
 * Returns the uid of the pod in the text of `/proc/<pid>/cgroup`, that of a static pod without dashes; null for a process that belongs
 * to none, or whose lines name different pods or containers.
 */
export function podOfCgroups(text: string): string | null {
  let found: { readonly uid: string; readonly container: string } | null = null;
  for (const line of text.split('\n')) {
    const path = line.slice(line.indexOf(':', line.indexOf(':') + 1) + 1);
    const [, named = '', container = ''] = POD_PATH.exec(path) ?? [];
    if (named === '') continue;
    const uid = named.replaceAll(/[^0-9a-f]/g, '-');
    if (found !== null && (found.uid !== uid || found.container !== container)) return null;
    found = { uid, container };
  }
  return found?.uid ?? null;
}
