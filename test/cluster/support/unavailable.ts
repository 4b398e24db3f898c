/** Says where a cluster cannot run. */
import { existsSync } from 'node:fs';
import { netnsUnavailable } from '../../support/netns-kit.ts';
import { findProgram } from '../../support/programs.ts';

const PROGRAMS = ['containerd', 'runc', 'ctr', 'unshare', 'pivot_root', 'tcpdump', 'g++'];

/** Why no cluster can run here; null when one can. */
export function clusterUnavailable(): string | null {
  for (const program of PROGRAMS) {
    if (findProgram(program) === null) {
      return `${program} is not installed (sh infra/setup.sh --cluster)`;
    }
  }
  if (!existsSync('/sys/fs/cgroup/cpuset')) {
    return 'the nodes need the hierarchies of control groups version 1';
  }
  return netnsUnavailable();
}
