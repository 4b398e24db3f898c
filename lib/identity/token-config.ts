/** Settings of the servers that verify their callers' tokens. */
import { list, text } from '../config/fields.ts';
import { TOKEN_AUDIENCE } from './token.ts';
import type { TokenVerifierOptions } from './token.ts';

/** The variables; {@link tokenConfig} maps their values. */
export const tokenVariables = {
  WEFT_TOKEN_JWKS_PATH: {
    schema: text(),
    description: "key set that verifies callers' tokens",
    when: 'always set: it decides which tokens are accepted',
  },
  TOKEN_AUDIENCES: {
    schema: list({ default: [TOKEN_AUDIENCE] }),
    description: 'audiences a token may have, comma-separated',
  },
  WEFT_TOKEN_ISSUER: {
    schema: text({ optional: true }),
    description: 'issuer a token must have; any when unset',
    when: 'the key set signs for several issuers',
  },
} as const;

/** Returns the rules for tokens. */
export function tokenConfig(values: {
  readonly WEFT_TOKEN_JWKS_PATH: string;
  readonly TOKEN_AUDIENCES: readonly string[];
  readonly WEFT_TOKEN_ISSUER: string | null;
}): TokenVerifierOptions {
  return {
    jwksPath: values.WEFT_TOKEN_JWKS_PATH,
    audiences: values.TOKEN_AUDIENCES,
    issuer: values.WEFT_TOKEN_ISSUER,
  };
}
