import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { ManifestProblem } from './parse.ts';

/** Refuses a whole batch; the state stays unchanged. Its code is MANIFEST_INVALID. */
export class ManifestRejection extends MeshError {
  readonly problems: readonly ManifestProblem[];

  constructor(problems: readonly ManifestProblem[]) {
    super('MANIFEST_INVALID', problems.map(problemText).join('; '), {
      detail: { problems: problems.length },
    });
    this.problems = problems;
  }
}

/** `file.yaml, document 2, spec.ports[0].port: must be …`; documents are counted from 0 as in the API. */
function problemText(problem: ManifestProblem): string {
  const place = `${problem.source}, document ${problem.index}`;
  return problem.path === ''
    ? `${place}: ${problem.reason}`
    : `${place}, ${problem.path}: ${problem.reason}`;
}

/** Refuses a field of one object; the caller knows its document. */
export class FieldRefusal extends Error {
  readonly path: string;

  constructor(path: string, reason: string) {
    super(reason);
    this.path = path;
  }
}
