/** Runs the load generators: iperf3 for bytes, wrk for closed loops. Both are written in C. */
import { inNamespace } from './process.ts';

/** The source and the destination of a load. */
export interface Target {
  /** Path of the client's network namespace. */
  readonly from: string;
  readonly host: string;
  /** Port of the byte server (iperf3). */
  readonly bytesPort: number;
  /** Port of the HTTP server. */
  readonly httpPort: number;
}

/** Latency in milliseconds, and the rate at which it was measured. */
export interface Latency {
  readonly rate: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
}

/** Measures throughput in Gbit/s as the receiver counts it. `down` is server to client. */
export async function throughput(
  target: Target,
  options: { connections: number; down: boolean; seconds: number },
): Promise<number> {
  const text = await inNamespace(
    target.from,
    'iperf3',
    '-c',
    target.host,
    '-p',
    String(target.bytesPort),
    '-J',
    '-t',
    String(options.seconds),
    '-P',
    String(options.connections),
    ...(options.down ? ['-R'] : []),
  );
  const report = JSON.parse(text) as { end: { sum_received: { bits_per_second: number } } };
  return report.end.sum_received.bits_per_second / 1e9;
}

/** Runs a closed loop of requests with 1 kB answers over `connections` connections. */
export async function closedLoop(
  target: Target,
  options: { connections: number; seconds: number; newConnections?: boolean },
): Promise<Latency> {
  const text = await inNamespace(
    target.from,
    'wrk',
    '-t1',
    `-c${options.connections}`,
    `-d${options.seconds}s`,
    '--latency',
    ...(options.newConnections === true ? ['-H', 'Connection: close'] : []),
    `http://${target.host}:${target.httpPort}/`,
  );
  const percentile = (name: string): number => {
    const match = new RegExp(`^\\s+${name}%\\s+([\\d.]+)(us|ms|s)$`, 'm').exec(text);
    return Number(match?.[1]) * ({ us: 0.001, ms: 1, s: 1000 }[match?.[2] ?? ''] ?? Number.NaN);
  };
  const errors = /Socket errors: (.*)$/m.exec(text)?.[1];
  const broken = /Non-2xx or 3xx responses: (\d+)/.exec(text)?.[1];
  // With Connection: close wrk counts the closing itself as a read error; failed connects are real.
  if (broken !== undefined || (errors !== undefined && !/connect 0,/.test(errors))) {
    throw new Error(`load on ${target.host}:${target.httpPort} had errors: ${errors ?? broken}`);
  }
  const rate = Number(/^Requests\/sec:\s+([\d.]+)$/m.exec(text)?.[1]);
  return { rate, p50: percentile('50'), p90: percentile('90'), p99: percentile('99') };
}
