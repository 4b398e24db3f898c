/** Hands a job to an actor of a mesh and waits for its answer. */
import { randomBytes } from 'node:crypto';
import type * as z from 'zod';
import type { JobDefinition } from '../../lib/bus/contract.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import type { WorkQueue } from '../../lib/bus/work-queue.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';

/** Time limit for the answer; a running actor answers within milliseconds. */
export const ANSWER_TIMEOUT_MS = 10_000;
/** Interval between attempts to add the job while the queue's connection opens. */
const RETRY_MS = 50;

/** A kind of mesh-scope job, and where its answers are. */
export interface WorkRequest<Body, Answer> {
  readonly job: JobDefinition<Body>;
  readonly board: string;
  readonly answer: z.ZodType<Answer>;
  /** Names the actor in the error when it does not answer. */
  readonly actor: string;
}

/** Adds the job and resolves with its answer. Throws BUS_TIMEOUT when there is none in time; the job is then removed. */
export async function requestWork<Body, Answer>(
  bus: Bus,
  { job, board: name, answer: schema, actor }: WorkRequest<Body, Answer>,
  body: Body,
  clock: Clock,
  timeoutMs = ANSWER_TIMEOUT_MS,
): Promise<Answer> {
  const end = clock.monotonic() + timeoutMs;
  const id = `cli-${randomBytes(8).toString('hex')}`;
  const queue = bus.queue(job, 'mesh');
  const board = bus.results(name, 'mesh', schema);
  await handIn(queue, id, body, clock, end);
  const answer = await board.wait(id, Math.max(0, end - clock.monotonic()));
  if (answer !== null) return answer;
  // Nobody waits for the answer any more.
  await queue.remove(id);
  throw new MeshError(
    'BUS_TIMEOUT',
    `${actor} did not answer within ${timeoutMs / 1_000} s; is it running? see: weft status`,
  );
}

/** Adds the job. A queue opens its connection on first use and refuses jobs until it is open. */
async function handIn<Body>(
  queue: WorkQueue<Body>,
  id: string,
  body: Body,
  clock: Clock,
  end: number,
): Promise<void> {
  for (;;) {
    try {
      await queue.add(id, body);
      return;
    } catch (error) {
      const again = error instanceof MeshError && error.code === 'BUS_UNAVAILABLE';
      if (!again || clock.monotonic() >= end) throw error;
      await clock.sleep(RETRY_MS);
    }
  }
}
