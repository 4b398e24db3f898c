import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { MeshError, errorText } from '../errors/mesh-error.ts';

/** Returns the current bearer token. Throws IDENTITY_TOKEN that names the file and the reason. */
export type TokenSource = () => Promise<string>;

/** Default path, where Kubernetes projects the token. */
const DEFAULT_TOKEN_PATH = './var/run/secrets/tokens/istio-token';

/**
 * Returns the source for `AUTH_TOKEN` (docs/spec/control.md §1), which is a path, read each time, or the token itself. A
 * token has no slash, so a value with one is a path even before the file exists. Without a value and without the default
 * file the source is null, and requests carry no token.
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
