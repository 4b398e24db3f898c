/** Parses manifest files: YAML (or JSON) with several documents. */
import { yaml } from '../config/yaml.ts';
import { errorText } from '../errors/mesh-error.ts';

/** One document of a manifest text. */
export interface TextDocument {
  readonly source: string;
  /** Position in the text, from 0; empty documents count but are left out. */
  readonly index: number;
  readonly object: unknown;
}

/** A document that is not YAML, or whose content is not plain data. */
export interface TextProblem {
  readonly source: string;
  readonly index: number;
  readonly path: string;
  readonly reason: string;
}

/** Aliases that one document may use; more would let a small document expand to a huge one. */
const MAX_ALIASES = 100;

/**
 * Splits a text into documents and skips empty ones. `source` names the text in problems. Duplicate keys and unknown tags are
 * problems. The documents may be incomplete when there are problems.
 */
export function parseManifestText(
  source: string,
  text: string,
): { documents: TextDocument[]; problems: TextProblem[] } {
  const documents: TextDocument[] = [];
  const problems: TextProblem[] = [];
  const parsed = yaml().parseAllDocuments(text, { prettyErrors: true, uniqueKeys: true });
  for (const [index, document] of (Array.isArray(parsed) ? parsed : []).entries()) {
    const refuse = (reason: string): void => {
      problems.push({ source, index, path: '', reason });
    };
    for (const error of [...document.errors, ...document.warnings]) {
      refuse(firstLine(error.message));
    }
    if (document.errors.length > 0) continue;
    try {
      const object: unknown = document.toJS({ maxAliasCount: MAX_ALIASES });
      if (object !== null && object !== undefined) documents.push({ source, index, object });
    } catch (error) {
      refuse(firstLine(errorText(error)));
    }
  }
  return { documents, problems };
}

/** Returns the message without the source lines that the library adds below it. */
function firstLine(message: string): string {
  return (message.split('\n', 1)[0] ?? message).replace(/:$/, '');
}
