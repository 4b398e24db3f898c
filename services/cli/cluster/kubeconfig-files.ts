import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { processEnvironment } from '../../../lib/config/env.ts';

/** Paths of the user's kubeconfig files that exist: those of KUBECONFIG, else the one in the home folder. */
export function kubeconfigFiles(): readonly string[] {
  const named = processEnvironment()['KUBECONFIG'];
  const files =
    named === undefined || named === ''
      ? [join(homedir(), '.kube', 'config')]
      : named.split(delimiter);
  return files.filter((file) => file !== '' && existsSync(file));
}
