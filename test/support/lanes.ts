/** Does work of which only so much fits beside each other. */

/**
 * A function that runs what it is given, at most `count` at a time, in order. AVA begins all tests of a file at once; what
 * starts processes would otherwise leave none of them a processor.
 */
export function lanes(count: number): <T>(work: () => Promise<T>) => Promise<T> {
  const waiting: (() => void)[] = [];
  let free = count;
  return async (work) => {
    if (free > 0) free -= 1;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = waiting.shift();
      if (next === undefined) free += 1;
      else next();
    }
  };
}
