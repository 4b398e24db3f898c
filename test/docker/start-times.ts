/** How long an actor takes from the start of its container to being ready. */
import type { DockerHost } from '../support/docker-host.ts';

/** One actor's. */
export interface StartTime {
  readonly service: string;
  readonly milliseconds: number;
}

const READY = /"actor\.ready"/;

/** From the engine's own note of the start to the actor's first word of being ready; null while it has not said so. */
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

/** A line for each, the slowest first. */
export function startTable(times: readonly StartTime[]): string {
  return times
    .toSorted((left, right) => right.milliseconds - left.milliseconds)
    .map(({ service, milliseconds }) => `${service.padEnd(18)} ${`${milliseconds} ms`.padStart(9)}`)
    .join('\n');
}
