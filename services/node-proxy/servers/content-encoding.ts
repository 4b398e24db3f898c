import { promisify } from 'node:util';
import { brotliCompress, constants, deflate, gzip, zstdCompress } from 'node:zlib';

/** Bodies below this gain nothing. */
const MIN_COMPRESSED_BYTES = 1_024;

const encoders: ReadonlyMap<string, (body: Buffer) => Promise<Buffer>> = new Map([
  ['zstd', (body: Buffer) => promisify(zstdCompress)(body)],
  ['br', compressBrotli],
  ['gzip', (body: Buffer) => promisify(gzip)(body)],
  ['deflate', (body: Buffer) => promisify(deflate)(body)],
]);

/** A body and the encoding it is in; null = as it is. */
export interface EncodedBody {
  readonly encoding: string | null;
  readonly body: Buffer;
}

/** Compresses a body the way an Accept-Encoding header likes best. */
export async function encodeBody(
  text: string,
  acceptEncoding: string | undefined,
): Promise<EncodedBody> {
  const body = Buffer.from(text);
  const encoding = body.length < MIN_COMPRESSED_BYTES ? null : chooseEncoding(acceptEncoding);
  const encoder = encoding === null ? undefined : encoders.get(encoding);
  return encoder === undefined ? { encoding: null, body } : { encoding, body: await encoder(body) };
}

/** The encoding with the highest weight, ours in order of thrift where several share it; null when none is. */
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

/** The default quality takes longer than sending the difference. */
function compressBrotli(body: Buffer): Promise<Buffer> {
  return promisify(brotliCompress)(body, { params: { [constants.BROTLI_PARAM_QUALITY]: 4 } });
}
