import * as z from 'zod';
import { makeField } from '../../lib/config/fields.ts';
import { yaml } from '../../lib/config/yaml.ts';
import type { EnablementSelector } from './eligibility.ts';

const expressionSchema = z
  .strictObject({
    key: z.string().min(1),
    operator: z.enum(['In', 'NotIn', 'Exists', 'DoesNotExist']),
    values: z.array(z.string()).optional(),
  })
  .refine(
    ({ operator, values }) =>
      operator.endsWith('In') === (values !== undefined && values.length > 0),
    'values: In and NotIn need some, Exists and DoesNotExist take none',
  );
const selectorSchema = z
  .strictObject({
    matchLabels: z.record(z.string(), z.string()).optional(),
    matchExpressions: z.array(expressionSchema).optional(),
  })
  .nullish()
  .transform((selector) => selector ?? undefined);
const selectorsSchema = z
  .array(z.strictObject({ podSelector: selectorSchema, namespaceSelector: selectorSchema }))
  .min(1);

/** Parses Istio's YAML list of `{podSelector, namespaceSelector}`. Throws an Error that names every wrong field. */
export function parseEnablementSelectors(text: string): readonly EnablementSelector[] {
  const parsed = selectorsSchema.safeParse(yaml().parse(text));
  if (parsed.success) return parsed.data;
  throw new Error(
    parsed.error.issues
      .map(({ path, message }) => `${path.join('.') || 'the list'}: ${message}`)
      .join('; '),
  );
}

/** A setting with such a list. */
export const enablementSelectors = makeField(parseEnablementSelectors, (selectors) =>
  JSON.stringify(selectors),
);
