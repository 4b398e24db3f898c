import type { Command } from 'commander';
import { describeVariables } from '../local/settings.ts';
import type { CommandContext } from '../main.ts';
import { printJson } from '../output.ts';

/** Two commands of the machinery: `variables` tells what each actor reads, `warm` only loads everything. */
export function addVariables(program: Command, _context: CommandContext): void {
  program.command('variables', { hidden: true }).action(async () => {
    await printJson(await describeVariables());
  });
  program.command('warm', { hidden: true }).action(async () => {
    await describeVariables();
    await Promise.all([import('../local/supervisor.ts'), import('../local/sample-server.ts')]);
  });
}
