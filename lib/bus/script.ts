import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { installedPath } from '../files/installation.ts';
import type { RedisClient } from './redis-client.ts';

/** A Lua step: its text and the hash by which Redis knows it. */
export interface Script {
  readonly text: string;
  readonly sha: string;
}

/** Loads `lua/<name>.lua`. */
export function loadScript(name: string): Script {
  const text = readFileSync(installedPath(`lib/bus/lua/${name}.lua`), 'utf8');
  return { text, sha: createHash('sha1').update(text).digest('hex') };
}

/** Runs a step; sends its text only when Redis does not know it (after a restart). */
export async function runScript(
  redis: RedisClient,
  script: Script,
  keys: readonly string[],
  args: readonly (string | Uint8Array)[],
): Promise<unknown> {
  const values = args.map((arg) => (typeof arg === 'string' ? arg : asBuffer(arg)));
  try {
    return await redis.evalsha(script.sha, keys.length, ...keys, ...values);
  } catch (error) {
    if (!(error instanceof Error) || !error.message.startsWith('NOSCRIPT')) throw error;
    return redis.eval(script.text, keys.length, ...keys, ...values);
  }
}

/** The bytes as a Buffer over the same memory. */
function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes)
    ? bytes
    : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
