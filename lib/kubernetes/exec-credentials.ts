/** Credentials from the program that a kubeconfig names, as clouds use them. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import * as z from 'zod';
import type { Environment } from '../config/env.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import type { GivenCredentials } from './connection.ts';
import { CREDENTIALS_TIMEOUT_MS, MAX_CREDENTIALS_BYTES } from './limits.ts';

const programSchema = z.looseObject({
  apiVersion: z.string().startsWith('client.authentication.k8s.io/'),
  command: z.string().min(1),
  args: z
    .array(z.string())
    .nullish()
    .transform((list) => list ?? []),
  env: z
    .array(z.looseObject({ name: z.string(), value: z.string() }))
    .nullish()
    .transform((list) => list ?? []),
  installHint: z.string().optional(),
});
const answerSchema = z.looseObject({
  status: z.looseObject({
    token: z.string().optional(),
    clientCertificateData: z.string().optional(),
    clientKeyData: z.string().optional(),
    expirationTimestamp: z.iso.datetime({ offset: true }).nullish(),
  }),
});

/**
 * Runs the program of `user.exec` with the caller's environment; the renewal runs it again. Throws CONFIG_INVALID, and
 * KUBERNETES_REFUSED when it gives no credentials.
 */
export async function execCredentials(
  program: unknown,
  environment: Environment,
): Promise<GivenCredentials> {
  const parsed = programSchema.safeParse(program);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const field = ['user.exec', ...(issue?.path ?? [])].join('.');
    throw new MeshError('CONFIG_INVALID', `kubeconfig: ${field}: ${issue?.message ?? 'unusable'}`);
  }
  const { apiVersion, command, args, env, installHint } = parsed.data;
  const info = { apiVersion, kind: 'ExecCredential', spec: { interactive: false } };
  try {
    const { stdout } = await promisify(execFile)(command, args, {
      env: {
        ...environment,
        ...Object.fromEntries(env.map(({ name, value }) => [name, value])),
        KUBERNETES_EXEC_INFO: JSON.stringify(info),
      },
      timeout: CREDENTIALS_TIMEOUT_MS,
      maxBuffer: MAX_CREDENTIALS_BYTES,
    });
    const { token, clientCertificateData, clientKeyData, expirationTimestamp } = readAnswer(stdout);
    const client =
      clientCertificateData === undefined || clientKeyData === undefined
        ? null
        : {
            certificate: { kind: 'text', text: clientCertificateData } as const,
            key: { kind: 'text', text: clientKeyData } as const,
          };
    if (token === undefined && client === null) throw new Error('its status has no credentials');
    return {
      token: token === undefined ? null : { kind: 'text', text: token },
      client,
      renewal: {
        expiresAtMs: expirationTimestamp == null ? null : Date.parse(expirationTimestamp),
        renew: () => execCredentials(program, environment),
      },
    };
  } catch (error) {
    const hint = installHint === undefined ? '' : `; ${installHint.trim()}`;
    throw new MeshError(
      'KUBERNETES_REFUSED',
      `the kubeconfig's program ${command} gave no credentials: ${errorText(error)}${hint}`,
      { cause: error },
    );
  }
}

/** Throws an error without the output, which may be secret. */
function readAnswer(stdout: string): z.infer<typeof answerSchema>['status'] {
  try {
    return answerSchema.parse(JSON.parse(stdout)).status;
  } catch {
    throw new Error('its output is no ExecCredential');
  }
}
