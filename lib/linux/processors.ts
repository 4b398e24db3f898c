import { readFileSync } from 'node:fs';

/** The time of all processors of a machine so far, in ticks. */
export interface ProcessorTimes {
  readonly idle: number;
  readonly all: number;
}

/**
 * Reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. `os.cpus()` also reads a slow file for each
 * processor. Null where a sandbox hides it.
 */
export function processorTimes(): ProcessorTimes | null {
  let line: string | undefined;
  try {
    [line] = readFileSync('/proc/stat', 'utf8').split('\n', 1);
  } catch {
    return null;
  }
  const fields = line?.trim().split(/\s+/).slice(1, 9).map(Number) ?? [];
  const idle = fields[3];
  if (idle === undefined || fields.some(Number.isNaN)) return null;
  return { idle, all: fields.reduce((sum, field) => sum + field, 0) };
}
