import type { Clock } from '../clock/clock.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import { readMaterial } from './connection.ts';
import type { GivenCredentials, KubernetesConnection, Material } from './connection.ts';
import { CREDENTIALS_AGE_MS, CREDENTIALS_MARGIN_MS } from './limits.ts';

/** Credentials of one request. */
export interface CurrentCredentials {
  readonly token: string | null;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

/**
 * Reads the files of the credentials, and again at {@link CREDENTIALS_AGE_MS}, because they are replaced in place. Renews those
 * of a program {@link CREDENTIALS_MARGIN_MS} before they expire.
 */
export class Credentials {
  readonly #ca: Material | null;
  readonly #clock: Clock;
  #given: GivenCredentials;
  #renewAtMs: number;
  #current: Promise<CurrentCredentials> | null = null;
  #last: CurrentCredentials | null = null;
  #readMs = 0;

  constructor(connection: KubernetesConnection, clock: Clock) {
    this.#ca = connection.ca;
    this.#clock = clock;
    this.#given = connection;
    this.#renewAtMs = renewalTime(connection);
  }

  /** Throws KUBERNETES_REFUSED that names the file which cannot be read, or the program. */
  read(): Promise<CurrentCredentials> {
    const nowMs = this.#clock.monotonic();
    const renews = this.#clock.now() >= this.#renewAtMs;
    if (this.#current === null || renews || nowMs - this.#readMs >= CREDENTIALS_AGE_MS) {
      this.#readMs = nowMs;
      // Other requests wait for the same run of the program.
      if (renews) this.#renewAtMs = Infinity;
      const reading = this.#readParts(renews);
      this.#current = reading;
      // A failed reading is not kept.
      reading.catch(() => {
        if (this.#current === reading) this.#current = null;
        if (renews) this.#renewAtMs = 0;
      });
    }
    return this.#current;
  }

  /** Makes the next call read the files, or run the program, again: the API server refused these credentials. */
  forget(refused: CurrentCredentials): void {
    // Another request may have had them replaced already.
    if (refused !== this.#last) return;
    this.#last = null;
    this.#current = null;
    if (this.#given.renewal !== undefined) this.#renewAtMs = 0;
  }

  async #readParts(renews: boolean): Promise<CurrentCredentials> {
    const { renewal } = this.#given;
    if (renews && renewal !== undefined) {
      this.#given = await renewal.renew();
      this.#renewAtMs = renewalTime(this.#given);
    }
    const { token, client } = this.#given;
    const [caPem, tokenText, cert, key] = await Promise.all([
      part('root certificate', this.#ca),
      part('token', token),
      part('client certificate', client?.certificate ?? null),
      part('client key', client?.key ?? null),
    ]);
    this.#last = {
      token: tokenText,
      ...(caPem === null ? {} : { ca: caPem }),
      ...(cert === null || key === null ? {} : { cert, key }),
    };
    return this.#last;
  }
}

/** When credentials are replaced, on the wall clock, as their program told their end. */
function renewalTime({ renewal }: GivenCredentials): number {
  return (renewal?.expiresAtMs ?? Infinity) - CREDENTIALS_MARGIN_MS;
}

async function part(name: string, material: Material | null): Promise<string | null> {
  if (material === null) return null;
  try {
    return await readMaterial(material);
  } catch (error) {
    throw new MeshError(
      'KUBERNETES_REFUSED',
      `cannot read the ${name} for the API server: ${errorText(error)}`,
      { cause: error },
    );
  }
}
