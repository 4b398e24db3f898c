import type { Clock } from '../clock/clock.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import { readMaterial } from './connection.ts';
import type { KubernetesConnection, Material } from './connection.ts';
import { CREDENTIALS_AGE_MS } from './limits.ts';

/** Credentials of one request. */
export interface CurrentCredentials {
  readonly token: string | null;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** Reads the files of the credentials, and again at {@link CREDENTIALS_AGE_MS}, because they are replaced in place. */
export class Credentials {
  readonly #connection: KubernetesConnection;
  readonly #clock: Clock;
  #current: Promise<CurrentCredentials> | null = null;
  #readMs = 0;

  constructor(connection: KubernetesConnection, clock: Clock) {
    this.#connection = connection;
    this.#clock = clock;
  }

  /** Throws KUBERNETES_REFUSED that names the file which cannot be read. */
  read(): Promise<CurrentCredentials> {
    const nowMs = this.#clock.monotonic();
    if (this.#current === null || nowMs - this.#readMs >= CREDENTIALS_AGE_MS) {
      this.#readMs = nowMs;
      const reading = this.#readFiles();
      this.#current = reading;
      // A failed reading is not kept.
      reading.catch(() => {
        if (this.#current === reading) this.#current = null;
      });
    }
    return this.#current;
  }

  /** Makes the next call read the files: the API server refused these. */
  forget(): void {
    this.#current = null;
  }

  async #readFiles(): Promise<CurrentCredentials> {
    const { ca, token, client } = this.#connection;
    const [caPem, tokenText, cert, key] = await Promise.all([
      part('root certificate', ca),
      part('token', token),
      part('client certificate', client?.certificate ?? null),
      part('client key', client?.key ?? null),
    ]);
    return {
      token: tokenText,
      ...(caPem === null ? {} : { ca: caPem }),
      ...(cert === null || key === null ? {} : { cert, key }),
    };
  }
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
