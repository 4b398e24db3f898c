import type { ZodError } from 'zod';

/** Returns every fault that a schema found, by the path of its field; `whole` names the value itself. */
export function schemaProblems({ issues }: ZodError, whole: string): string {
  return issues.map(({ path, message }) => `${path.join('.') || whole}: ${message}`).join('; ');
}
