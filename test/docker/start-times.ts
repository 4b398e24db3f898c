/** Measures the time from the start of an actor's container until it is ready. */
import type { DockerHost } from '../support/docker-host.ts';

/** The start time of one actor. */
export interface StartTime {
  readonly service: string;
  readonly milliseconds: number;
}

const READY = /"actor\.ready"/;

/** Measures from the engine's start time to the actor's first ready event; null before that event. */
export async function startTime(
  host: DockerHost,
  service: string,
  container: string,
): Promise<StartTime | null> {
  const [facts] = await host.inspect(container);
  const started = facts?.State.StartedAt ?? '';
  const { stdout } = await host.docker('logs', '--since', started, container);
  const line = stdout.split('\n').find((one) => READY.test(one));
  if (line === undefined) return null;
  const { time } = JSON.parse(line) as { time: string };
  return { service, milliseconds: Date.parse(time) - Date.parse(started) };
}

/** Formats one line for each actor, slowest first. */
export function startTable(times: readonly StartTime[]): string {
  return times
    .toSorted((left, right) => right.milliseconds - left.milliseconds)
    .map(({ service, milliseconds }) => `${service.padEnd(18)} ${`${milliseconds} ms`.padStart(9)}`)
    .join('\n');
}
