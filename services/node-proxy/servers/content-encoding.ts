import { promisify } from 'node:util';
import { brotliCompress, constants, deflate, gzip, zstdCompress } from 'node:zlib';

/** Compression gains nothing for shorter bodies. */
const MIN_COMPRESSED_BYTES = 1_024;

/** The default quality of brotli takes longer than it takes to send the difference. */
const BROTLI_OPTIONS = { params: { [constants.BROTLI_PARAM_QUALITY]: 4 } };

/** Best ratio first. */
const encoders: ReadonlyMap<string, (body: Buffer) => Promise<Buffer>> = new Map([
  ['zstd', (body) => promisify(zstdCompress)(body)],
  ['br', (body) => promisify(brotliCompress)(body, BROTLI_OPTIONS)],
  ['gzip', promisify<Buffer, Buffer>(gzip)],
  ['deflate', promisify<Buffer, Buffer>(deflate)],
]);

/** A body and its encoding; null = not compressed. */
export interface EncodedBody {
  readonly encoding: string | null;
  readonly body: Buffer;
}

/** Compresses a body with the encoding that the Accept-Encoding header prefers. */
export async function encodeBody(
  text: string,
  acceptEncoding: string | undefined,
): Promise<EncodedBody> {
  const body = Buffer.from(text);
  const encoding = body.length < MIN_COMPRESSED_BYTES ? null : chooseEncoding(acceptEncoding);
  const encoder = encoding === null ? undefined : encoders.get(encoding);
  return encoder === undefined ? { encoding: null, body } : { encoding, body: await encoder(body) };
}

/** Returns the encoding with the highest weight, of equal ones the one with the best ratio; null when none is accepted. */
export function chooseEncoding(acceptEncoding: string | undefined): string | null {
  const weights = new Map<string, number>();
  for (const element of (acceptEncoding ?? '').split(',')) {
    const [name, ...parameters] = element.split(';').map((part) => part.trim());
    if (name === undefined || name === '') continue;
    const weight = parameters.find((parameter) => parameter.startsWith('q='));
    weights.set(name.toLowerCase(), weight === undefined ? 1 : Number(weight.slice(2)));
  }
  let best: string | null = null;
  let bestWeight = 0;
  for (const name of encoders.keys()) {
    const weight = weights.get(name) ?? weights.get('*') ?? 0;
    if (weight > bestWeight) {
      best = name;
      bestWeight = weight;
    }
  }
  return best;
}
