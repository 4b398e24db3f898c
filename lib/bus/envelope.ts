import * as z from 'zod';
import { MeshError } from '../errors/mesh-error.ts';
import type { JobDefinition } from './contract.ts';

/** The wrapper of every message of the work plane. */
export interface Envelope<Body> {
  /** Version of the body. */
  readonly v: number;
  readonly name: string;
  readonly id: string;
  /** Milliseconds since the epoch. */
  readonly at: number;
  /** The process that sent it. */
  readonly from: string;
  readonly body: Body;
  /** The body of the version after, for readers that know it. */
  readonly next?: { readonly v: number; readonly body: unknown };
}

const envelopeSchema = z.object({
  v: z.int().positive(),
  name: z.string(),
  id: z.string(),
  at: z.number(),
  from: z.string(),
  body: z.unknown(),
  next: z.object({ v: z.int().positive(), body: z.unknown() }).exactOptional(),
});

/** Wraps a body in an envelope, with its older form where the definition writes one. */
export function sealEnvelope<Body>(
  definition: JobDefinition<Body>,
  message: { readonly id: string; readonly at: number; readonly from: string; readonly body: Body },
): Envelope<unknown> {
  const { name, older, version } = definition;
  if (older === undefined) return { v: version, name, ...message };
  const next = { v: version, body: message.body };
  return { v: version - 1, name, ...message, body: older(message.body), next };
}

/**
 * Reads a message of the definition's current version, or of the one before where the definition reads it. Throws BUS_MESSAGE
 * that names the message and what is wrong with it; such a message is parked, not guessed.
 */
export function openEnvelope<Body>(definition: JobDefinition<Body>, data: unknown): Envelope<Body> {
  const parsed = envelopeSchema.safeParse(data);
  if (!parsed.success) {
    throw new MeshError(
      'BUS_MESSAGE',
      `${definition.name}: not an envelope: ${z.prettifyError(parsed.error)}`,
    );
  }
  const envelope = parsed.data;
  if (envelope.name !== definition.name) {
    throw new MeshError(
      'BUS_MESSAGE',
      `queue ${definition.queue} holds an unknown message ${envelope.name}`,
      {
        detail: { name: envelope.name },
      },
    );
  }
  const { v, name, id, at, from } = envelope;
  return { v, name, id, at, from, body: readBody(definition, envelope) };
}

function readBody<Body>(
  definition: JobDefinition<Body>,
  envelope: { v: number; body?: unknown; next?: { v: number; body?: unknown } },
): Body {
  const { name, version } = definition;
  const { next } = envelope;
  const newest = next !== undefined && next.v <= version ? next : envelope;
  let body = newest.body;
  if (newest.v === version - 1 && definition.previous !== undefined) {
    body = definition.previous(body);
  } else if (newest.v !== version) {
    throw new MeshError(
      'BUS_MESSAGE',
      `${name}: version ${newest.v} is not readable, ${version} is current`,
      {
        detail: { version: newest.v },
      },
    );
  }
  const parsed = definition.body.safeParse(body);
  if (parsed.success) return parsed.data;
  throw new MeshError('BUS_MESSAGE', `${name} v${newest.v}: ${z.prettifyError(parsed.error)}`);
}
