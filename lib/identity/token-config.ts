/** Settings of every server that verifies tokens of its callers. */
import { list, text } from '../config/fields.ts';
import { TOKEN_AUDIENCE } from './token.ts';
import type { TokenVerifierOptions } from './token.ts';

/** Shape the parsed values with {@link tokenConfig}. */
export const tokenVariables = {
  WEFT_TOKEN_JWKS_PATH: {
    schema: text(),
    description: "key set that verifies callers' tokens",
    when: 'always set: it decides whose tokens count',
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

/** The rules for tokens in the values of {@link tokenVariables}. */
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
