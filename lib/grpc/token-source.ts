import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { MeshError, errorText } from '../errors/mesh-error.ts';

/** Gives the bearer token to present now. Throws IDENTITY_TOKEN that names the file and the reason. */
export type TokenSource = () => Promise<string>;

/** Where Kubernetes projects the token when `AUTH_TOKEN` is unset. */
export const DEFAULT_TOKEN_PATH = './var/run/secrets/tokens/istio-token';

/**
 * `AUTH_TOKEN` (docs/spec/control.md §1): a path, read anew each time, or the token itself. A token holds no slash,
 * so a text with one is a path even while the file does not exist. Null when nothing is configured and the
 * default file is absent: requests then carry no token.
 */
export function tokenSource(authToken: string | null): TokenSource | null {
  if (authToken === null) {
    return existsSync(DEFAULT_TOKEN_PATH) ? () => readToken(DEFAULT_TOKEN_PATH) : null;
  }
  if (authToken.includes('/') || existsSync(authToken)) return () => readToken(authToken);
  return () => Promise.resolve(authToken);
}

async function readToken(path: string): Promise<string> {
  let content: string;
  try {
    content = await readFile(path, 'utf8');
  } catch (error) {
    throw new MeshError('IDENTITY_TOKEN', `cannot read the token file: ${errorText(error)}`, {
      cause: error,
      detail: { path },
    });
  }
  const token = content.trim();
  if (token === '') {
    throw new MeshError('IDENTITY_TOKEN', `the token file ${path} is empty`, { detail: { path } });
  }
  return token;
}
