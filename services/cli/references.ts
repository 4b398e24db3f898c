/** Parses names of pods and services, and times, from the command line. */
import { parseDuration } from '../../lib/config/fields.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { UsageError } from '../../lib/errors/usage-error.ts';

/** `namespace/name`. */
export interface ObjectReference {
  readonly namespace: string;
  readonly name: string;
}

/** `namespace/name:port`. */
export interface PortReference extends ObjectReference {
  readonly port: number;
}

const LABEL = /^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/;

/** Reads `<namespace>/<pod>`. `what` names the argument. Throws UsageError. */
export function parsePod(what: string, text: string): ObjectReference {
  const [namespace, name, ...rest] = text.split('/');
  if (rest.length > 0 || !isName(namespace) || !isName(name)) {
    throw new UsageError(`${what} must be <namespace>/<pod>, got ${JSON.stringify(text)}`);
  }
  return { namespace, name };
}

/** Reads `<namespace>/<pod or service>:<port>`. Throws UsageError. */
export function parseDestination(what: string, text: string): PortReference {
  const match = /^(?<object>[^:]*):(?<port>\d{1,5})$/.exec(text);
  const port = Number(match?.groups?.['port']);
  const [namespace, name, ...rest] = (match?.groups?.['object'] ?? '').split('/');
  if (rest.length > 0 || !isName(namespace) || !isName(name) || port < 1 || port > 65_535) {
    throw new UsageError(
      `${what} must be <namespace>/<pod or service>:<port>, got ${JSON.stringify(text)}`,
    );
  }
  return { namespace, name, port };
}

/** Reads `--timeout` as milliseconds. Throws UsageError. */
export function parseTimeout(text: string): number {
  try {
    return parseDuration(text);
  } catch (error) {
    throw new UsageError(`--timeout ${errorText(error)}`);
  }
}

function isName(text: string | undefined): text is string {
  return text !== undefined && text.length <= 253 && LABEL.test(text);
}
