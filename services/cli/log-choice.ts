/** Chooses the log files that `weft logs` shows. Pure. */
import { UsageError } from '../../lib/errors/usage-error.ts';

/** A log: the name of its process, `actor` or `actor.node`, and its file's name. */
export interface LogName {
  readonly process: string;
  readonly file: string;
}

const SUFFIX = '.log';

/**
 * The logs that `wanted` names: `<actor>` on every node, `<node>/<actor>` or `<actor>.<node>`, or `pod.<namespace>.…`.
 * Without a name, the logs of all processes except the pods' commands. Throws UsageError for an unknown name.
 */
export function chooseLogs(
  files: readonly string[],
  wanted: string | undefined,
): readonly LogName[] {
  const logs = files
    .filter((file) => file.endsWith(SUFFIX))
    .map((file) => ({ process: file.slice(0, -SUFFIX.length), file }))
    .sort((left, right) => (left.process < right.process ? -1 : 1));
  const ofMesh = logs.filter(({ process }) => !process.startsWith('pod.'));
  if (wanted === undefined) return ofMesh;
  const [node, actor, ...rest] = wanted.split('/');
  const name = actor === undefined ? wanted : `${actor}.${node}`;
  const pattern = `${name}.`;
  const chosen = logs.filter(
    ({ process }) => process === name || (actor === undefined && process.startsWith(pattern)),
  );
  if (chosen.length > 0 && rest.length === 0) return chosen;
  const known = ofMesh.map(({ process }) => process).join(', ');
  throw new UsageError(`no log of ${JSON.stringify(wanted)}; there are ${known || 'none'}`);
}
