import { constants } from 'node:os';

const SIGNALS = ['SIGINT', 'SIGTERM'] as const;

/** SIGINT and SIGTERM as something to wait for. From its construction on they no longer end the process. */
export class Interruption {
  readonly #controller = new AbortController();
  #status: number | null = null;

  readonly #listener = (name: (typeof SIGNALS)[number]): void => {
    this.#status ??= 128 + constants.signals[name];
    this.#controller.abort(new Error(`interrupted by ${name}`));
  };

  constructor() {
    for (const name of SIGNALS) process.on(name, this.#listener);
  }

  /** Gives the signals back. */
  dispose(): void {
    for (const name of SIGNALS) process.off(name, this.#listener);
  }

  /** Aborted by the first of the signals; later ones are without effect. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** The exit status of a process that the signal ended, as shells report it; null before there was one. */
  get exitStatus(): number | null {
    return this.#status;
  }
}

/** Resolves when the signal aborts. */
export function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
