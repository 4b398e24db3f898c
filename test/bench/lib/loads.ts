/** The load generators: iperf3 for bytes, wrk for closed loops. Both are C. */
import { inNamespace } from './process.ts';

/** Where load comes from and goes to. */
export interface Target {
  /** Path of the client's network namespace. */
  readonly from: string;
  readonly host: string;
  /** Port of the byte server (iperf3). */
  readonly bytesPort: number;
  /** Port of the HTTP server. */
  readonly httpPort: number;
}

/** Latency in milliseconds and the rate it was seen at. */
export interface Latency {
  readonly rate: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
}

/** Throughput in Gbit/s as the receiver counted it. `down` = server to client. */
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

/** As many requests as `connections` connections can make one after another; 1 kB answers. */
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
