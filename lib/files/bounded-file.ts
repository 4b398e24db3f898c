import { open } from 'node:fs/promises';

/** Reads a file after a check of its size, so that a huge one costs no memory. Throws an Error for more than `maxBytes`. */
export async function readBounded(path: string, maxBytes: number): Promise<Buffer> {
  await using file = await open(path, 'r');
  const { size } = await file.stat();
  if (size > maxBytes) throw new Error(`it is longer than ${maxBytes} bytes`);
  return await file.readFile();
}
