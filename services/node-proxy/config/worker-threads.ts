/** Most listener threads; a higher number is a misconfiguration rather than a big machine. */
export const MAX_LISTENER_THREADS = 128;

/** With fewer threads, one busy pod would slow all others. */
const AUTO_MIN_THREADS = 2;
/** Without limits a node proxy takes a quarter of the machine, as upstream. */
const AUTO_SHARE_OF_CORES = 0.25;

/** `ZTUNNEL_WORKER_THREADS`: a number, a share of the cores, or all cores. */
export type ThreadSetting =
  | { readonly kind: 'count'; readonly count: number }
  | { readonly kind: 'percent'; readonly percent: number };

/** Inputs of the number of threads (docs/spec/observability.md §6), in cores; null = not set. */
export interface ThreadInputs {
  readonly setting: ThreadSetting | null;
  readonly cpuLimit: number | null;
  readonly cpuRequest: number | null;
  readonly concurrency: number | null;
  readonly cores: number;
}

/** Parses `n`, `p%`, or `0` for all cores. Throws an Error that says what is expected. */
export function parseThreadSetting(text: string): ThreadSetting {
  const percent = /^(\d{1,3})%$/.exec(text);
  if (percent !== null && Number(percent[1]) >= 1 && Number(percent[1]) <= 100) {
    return { kind: 'percent', percent: Number(percent[1]) };
  }
  if (/^\d+$/.test(text) && Number(text) <= MAX_LISTENER_THREADS) {
    return { kind: 'count', count: Number(text) };
  }
  throw new Error(`must be 0 to ${MAX_LISTENER_THREADS}, or 1% to 100%`);
}

/** Parses a CPU quantity, `2`, `1.5` or `500m`, into cores. Throws an Error that says what is expected. */
export function parseCpuQuantity(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(m)?$/.exec(text);
  if (match === null) throw new Error('must be a CPU quantity such as 2 or 500m');
  return Number(match[1]) / (match[2] === undefined ? 1 : 1_000);
}

/** Returns the number of listener threads, from 1 to {@link MAX_LISTENER_THREADS}. */
export function listenerThreads(inputs: ThreadInputs): number {
  return Math.max(1, Math.min(MAX_LISTENER_THREADS, Math.ceil(wantedThreads(inputs))));
}

function wantedThreads({
  setting,
  cpuLimit,
  cpuRequest,
  concurrency,
  cores,
}: ThreadInputs): number {
  if (concurrency !== null) return concurrency === 0 ? cores : concurrency;
  if (setting?.kind === 'percent') return (cores * setting.percent) / 100;
  if (setting?.kind === 'count') return setting.count === 0 ? cores : setting.count;
  const request = Math.ceil(cpuRequest ?? 0);
  if (cpuLimit !== null) return Math.max(Math.ceil(cpuLimit), request);
  return Math.max(Math.ceil(cores * AUTO_SHARE_OF_CORES), request, AUTO_MIN_THREADS);
}
