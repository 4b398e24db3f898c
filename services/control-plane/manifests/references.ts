import * as z from 'zod';
import { dnsLabel, dnsSubdomain } from '../../../lib/kubernetes/label-fields.ts';
import { KINDS, isKind, isNamespaced } from './kinds.ts';
import type { ObjectName } from './kinds.ts';
import { listItems } from './parse.ts';
import type { ManifestDocument, ManifestProblem } from './parse.ts';

/** The object that a document names. */
export interface ManifestReference {
  readonly source: string;
  readonly index: number;
  readonly name: ObjectName;
}

const reference = z.object({
  kind: z.string('is required').refine(isKind, `must be one of ${KINDS.join(', ')}`),
  metadata: z.object({ name: dnsSubdomain, namespace: dnsLabel.nullish() }, 'is required'),
});

/** The names in a batch of documents to delete, and in their Lists. The rest of a document need not be valid. */
export function parseReferences(documents: readonly ManifestDocument[]): {
  references: ManifestReference[];
  problems: ManifestProblem[];
} {
  const references: ManifestReference[] = [];
  const problems: ManifestProblem[] = [];
  const visit = ({ source, index }: ManifestDocument, object: unknown, path: string): void => {
    const items = listItems(object);
    if (items !== null) {
      for (const [item, content] of items.entries()) {
        visit({ source, index, object: content }, content, `${path}items[${item}].`);
      }
      return;
    }
    const parsed = reference.safeParse(object);
    if (!parsed.success) {
      for (const issue of parsed.error.issues) {
        problems.push({
          source,
          index,
          path: `${path}${issue.path.join('.')}`,
          reason: issue.message,
        });
      }
      return;
    }
    const { kind, metadata } = parsed.data;
    const namespace = isNamespaced(kind) ? (metadata.namespace ?? 'default') : '';
    references.push({ source, index, name: { kind, namespace, name: metadata.name } });
  };
  for (const document of documents) visit(document, document.object, '');
  return { references, problems };
}
