/**
 * Runs rounds of kill-at-once.ts on a mesh of containers while threads keep the machine busy:
 * `npm run soak:docker -- --rounds N --busy THREADS`. Ends with status 1 when a request failed.
 */
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { composeV1 } from '../support/compose.ts';
import { dockerUnavailable } from '../support/docker-host.ts';
import { busyMachine, killAtOnce } from './kill-at-once.ts';
import { Rig } from './rig.ts';

/** The time limit of a cold build on a busy machine. */
const BUILD_LIMIT_MS = 900_000;
const DEFAULT_ROUNDS = '30';
/** The number of log lines of each proxy that are shown when a request failed. */
const LOG_LINES = '400';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: DEFAULT_ROUNDS },
    busy: { type: 'string', default: String(availableParallelism()) },
  },
});
const rounds = Number(values.rounds);
const busyThreads = Number(values.busy);
const say = (text: string): void => void process.stdout.write(`${text}\n`);

const program = composeV1();
const missing = dockerUnavailable() ?? (program === null ? 'docker-compose 1.29' : null);
if (missing !== null || program === null) {
  say(`SKIPPED soak:docker: ${missing}`);
} else {
  const rig = new Rig();
  let rest = (): Promise<void> => Promise.resolve();
  try {
    const late = await rig.build(BUILD_LIMIT_MS);
    if (late !== null) throw new Error(late);
    await rig.up(program);
    await rig.answered();
    rest = busyMachine(busyThreads);
    process.exitCode = (await allRounds(rig)) ? 0 : 1;
  } catch (error) {
    process.exitCode = 1;
    say(String(error));
  } finally {
    await rest();
    await rig.remove();
  }
}

async function allRounds(rig: Rig): Promise<boolean> {
  let answers = 0;
  let failures = 0;
  for (let number = 1; number <= rounds; number += 1) {
    const round = await killAtOnce(rig);
    answers += round.answers;
    failures += round.failed.length;
    say(`round ${number}: ${round.answers} answered, ${round.failed.length} failed`);
    if (round.failed.length > 0) await explain(rig, round.failed, round.delaysMs);
  }
  say(`${rounds} rounds: ${answers} answered, ${failures} failed`);
  return failures === 0;
}

async function explain(
  rig: Rig,
  failed: readonly string[],
  delaysMs: Readonly<Record<string, number>>,
): Promise<void> {
  say(`killed after ms: ${JSON.stringify(delaysMs)}`);
  for (const line of failed) say(`  ${line}`);
  say((await rig.compose.call('logs', '--no-color', '--timestamps', '--tail', LOG_LINES)).stdout);
}
