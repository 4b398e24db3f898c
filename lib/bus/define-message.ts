import type { z } from 'zod';
import { assert } from '../errors/assert.ts';
import type { JobDefinition } from './contract.ts';

/** What {@link defineJob} is told; a definition without a sample does not compile. */
export interface JobOptions<Body> {
  /** BullMQ queue; the scope gives its prefix. */
  readonly queue: string;
  /** An imperative such as `certificate.sign`. */
  readonly name: string;
  readonly version: number;
  readonly body: z.ZodType<Body>;
  readonly sample: Body;
  readonly attempts: number;
  readonly backoffMs: number;
  /** Reads a body of `version - 1`; without it such messages are parked. */
  readonly previous?: (body: unknown) => Body;
}

/** Defines a kind of job. The sample must be a valid body. */
export function defineJob<Body>(options: JobOptions<Body>): JobDefinition<Body> {
  assert(/^[a-z-]+$/.test(options.queue), `queue name ${options.queue}`);
  assert(Number.isInteger(options.version) && options.version >= 1, `version of ${options.name}`);
  assert(options.attempts >= 1 && options.backoffMs >= 0, `attempts of ${options.name}`);
  assert(
    options.body.safeParse(options.sample).success,
    `the sample of ${options.name} is not valid`,
  );
  return Object.freeze({ ...options });
}
