/** The `weft` command. Each subcommand is a file in commands/, loaded when it is called for. */
import { Command } from 'commander';
import { processEnvironment } from '../../lib/config/env.ts';
import { describeFailure } from './exit-code.ts';
import { tell } from './output.ts';
import { addApply, addDelete } from './commands/apply.ts';
import { addDown } from './commands/down.ts';
import { addEnv } from './commands/env.ts';
import { addExec } from './commands/exec.ts';
import { addGet } from './commands/get.ts';
import { addLogs } from './commands/logs.ts';
import { addPolicy } from './commands/policy-explain.ts';
import { addRun } from './commands/run.ts';
import { addStatus } from './commands/status.ts';
import { addUp } from './commands/up.ts';
import { addVariables } from './commands/variables.ts';

/** What every command is handed. */
export interface CommandContext {
  readonly environment: ReturnType<typeof processEnvironment>;
  /** Sets the exit status of the process. */
  exit(code: number): void;
}

/** The whole command line. */
export function buildProgram(context: CommandContext): Command {
  const program = new Command('weft')
    .description('An ambient service mesh: a local mesh in network namespaces, and the roles it is made of.')
    .helpCommand(false)
    .showHelpAfterError('(weft --help, weft <command> --help)')
    .exitOverride()
    .addHelpText(
      'after',
      '\nExit status: 0 done, 1 failed, 2 wrong usage, 78 wrong configuration.\nEnvironment: WEFT_MESH names the mesh, WEFT_RUN_DIR its run directory (default /run/weft, /run/weft-<mesh>).',
    );
  const commands = [
    addUp,
    addDown,
    addStatus,
    addGet,
    addExec,
    addApply,
    addDelete,
    addPolicy,
    addEnv,
    addRun,
    addLogs,
    addVariables,
  ];
  for (const add of commands) add(program, context);
  return program;
}

/** Runs the command line; resolves with the exit status. */
export async function main(words: readonly string[]): Promise<number> {
  let code = 0;
  const context: CommandContext = {
    environment: processEnvironment(),
    exit: (status) => {
      code = status;
    },
  };
  try {
    await buildProgram(context).parseAsync([...words], { from: 'user' });
  } catch (error) {
    const failure = describeFailure(error);
    if (failure.text !== null) tell(`weft: ${failure.text}`);
    code = failure.code;
  }
  return code;
}

if (import.meta.main) {
  // A reader such as `head` may close the pipe early.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
  });
  process.exitCode = await main(process.argv.slice(2));
}
