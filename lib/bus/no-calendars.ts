/** Stands for the package `cron-parser` in the programs, where BullMQ is used without repeated jobs. */

/** Refuses what BullMQ asks for a repeated job. */
export const CronExpressionParser = {
  parse(): never {
    throw new Error('repeated jobs are left out of this program (lib/bus/no-calendars.ts)');
  },
};
