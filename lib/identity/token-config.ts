/** Settings of the servers that verify their callers' tokens. */
import { list, text } from '../config/fields.ts';
import { TOKEN_AUDIENCE } from './token.ts';

/** The variables. The key set is for objects from manifests; an API server reviews tokens itself. */
export const tokenVariables = {
  WEFT_TOKEN_JWKS_PATH: {
    schema: text({ optional: true }),
    description: "key set that verifies callers' tokens",
    when: 'always set with manifests: it decides which tokens are accepted',
  },
  TOKEN_AUDIENCES: {
    schema: list({ default: [TOKEN_AUDIENCE] }),
    description: 'audiences a token may have, comma-separated',
  },
  TOKEN_ISSUER: {
    schema: text({ optional: true }),
    description: 'issuer a token must have; any when unset',
  },
} as const;
