/** Drops empty texts, lists and objects, false and null, as upstream does. */
export function omitEmpty(properties: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(properties).filter(([, value]) => !isEmpty(value)));
}

/** Turns `HEALTHY` into `Healthy`, `WORKLOAD_SELECTOR` into `WorkloadSelector`. */
export function title(constant: string): string {
  return constant
    .split('_')
    .map((word) => word.slice(0, 1) + word.slice(1).toLowerCase())
    .join('');
}

function isEmpty(value: unknown): boolean {
  if (value === null || value === undefined || value === '' || value === false) return true;
  if (Array.isArray(value)) return value.length === 0;
  return typeof value === 'object' && Object.keys(value).length === 0;
}
