/** Commands that bring up a mesh take it down when they are interrupted. */

/** Exit status of a shell's command that SIGINT ended. */
const INTERRUPTED = 130;

/** Calls `down` at the first SIGINT or SIGTERM, then ends the process. Returns how to call that off. */
export function downWhenInterrupted(down: () => Promise<void>): () => void {
  const onSignal = (): void => {
    process.stderr.write('interrupted: taking everything down\n');
    void down().finally(() => process.exit(INTERRUPTED));
  };
  const signals = ['SIGINT', 'SIGTERM'] as const;
  for (const signal of signals) process.once(signal, onSignal);
  return () => {
    for (const signal of signals) process.off(signal, onSignal);
  };
}
