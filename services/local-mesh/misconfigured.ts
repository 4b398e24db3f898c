import { MeshError } from '../../lib/errors/mesh-error.ts';
import { lastLines } from './log-files.ts';

/** The error for a process that refuses its configuration, with the last lines of its log. */
export async function misconfigured(name: string, logFile: string): Promise<MeshError> {
  const [reason = `see ${logFile}`] = await lastLines(logFile, 1);
  return new MeshError(
    'CONFIG_INVALID',
    `${name} refuses its configuration: ${reason.replace(/^weft: /, '')}`,
  );
}
