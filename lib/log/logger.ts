import { pino } from 'pino';
import type { DestinationStream, Logger as PinoLogger } from 'pino';

/** The structured logger every actor is handed; JSON lines on standard output. */
export type Logger = PinoLogger;

/** Names carried by every line: who wrote it. */
export interface LoggerOptions {
  readonly actor: string;
  readonly node?: string | null;
  readonly worker?: number;
  readonly level?: string;
}

/**
 * A logger that writes synchronously to file descriptor 1 (or `destination`), which is safe in threads
 * and loses nothing when a process is killed right after a line.
 */
export function createLogger(options: LoggerOptions, destination?: DestinationStream): Logger {
  const base: Record<string, string | number> = { actor: options.actor };
  if (options.node !== undefined && options.node !== null) base['node'] = options.node;
  if (options.worker !== undefined) base['worker'] = options.worker;
  return pino(
    {
      base,
      level: options.level ?? 'info',
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      messageKey: 'message',
      errorKey: 'error',
    },
    destination ?? pino.destination({ fd: 1, sync: true }),
  );
}
