/** The `weft` command: finds the subcommand, loads only that one, and turns its outcome into an exit status. */
import { setFlagsFromString } from 'node:v8';
import { Command, CommanderError } from 'commander';
import { commandName, commands } from './command-table.ts';
import { failureOf } from './failure.ts';
import { endQuietlyOnBrokenPipe, readsMesh } from './output.ts';

/** The status that a shell reports for a program that SIGPIPE ended. */
const EXIT_BROKEN_PIPE = 141;

const HELP = `
Exit status: 0 done, 1 failed, 2 wrong usage, 78 wrong configuration.
Environment: WEFT_MESH names the mesh, WEFT_RUN_DIR its run directory (default /run/weft, or /run/weft-<mesh>).`;

function createProgram(): Command {
  const program = new Command('weft')
    .description('an ambient service mesh as a multi-process actor runtime')
    .usage('<command> [options]')
    .helpOption('-h, --help', 'show help')
    .helpCommand('help [command]', 'show help for a command')
    .addHelpText('after', HELP)
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({
      outputError: (text, write) => write(`weft: ${oneLine(text)}\n`),
    });
  // `weft --mesh x get pods` means the same as `weft get pods --mesh x`.
  readsMesh(program).hook('preAction', (root, action) => {
    const own = action.opts<Record<string, unknown>>();
    for (const [name, value] of Object.entries(root.opts<Record<string, unknown>>())) {
      if (own[name] === undefined) action.setOptionValue(name, value);
    }
  });
  return program;
}

function oneLine(text: string): string {
  return text
    .replace(/^error: /, '')
    .trim()
    .replaceAll(/\s*\n\s*/g, ' ');
}

/** Declares all commands by name; loads only the called one. */
async function addCommands(program: Command, called: string | null): Promise<void> {
  for (const [name, { summary, hidden, load }] of Object.entries(commands)) {
    const command = program.command(name, { hidden: hidden === true }).description(summary);
    if (name === called) (await load()).register(command);
  }
}

/**
 * Removes the launcher's flag that bounds the young generation of this thread. The heap of this thread has read it. Left
 * in place, it would override the limits of every thread started here.
 */
function leaveThreadsUnbound(): void {
  setFlagsFromString('--max-semi-space-size=0');
}

async function main(): Promise<void> {
  leaveThreadsUnbound();
  endQuietlyOnBrokenPipe(EXIT_BROKEN_PIPE);
  const program = createProgram();
  try {
    await addCommands(program, commandName(process.argv.slice(2)));
    await program.parseAsync();
  } catch (error) {
    const failure = failureOf(error);
    process.exitCode = failure.status;
    // The parser has already written its message.
    if (error instanceof CommanderError) return;
    process.stderr.write(failure.lines.map((line) => `${line}\n`).join(''));
  }
}

await main();
