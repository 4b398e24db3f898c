/** Runs a local mesh for other implementations, and issues certificates of its authority to them. */
import { X509Certificate, createPrivateKey, generateKeyPairSync } from 'node:crypto';
import { execFile } from 'node:child_process';
import { readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { present } from '../../../lib/errors/assert.ts';
import { issueLeaf } from '../../../lib/identity/x509.ts';
import { parseState } from '../../../services/ca/state.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { TestMesh } from '../../support/mesh.ts';
import type { MeshOptions } from '../../support/mesh.ts';

const run = promisify(execFile);
const HOUR_MS = 3_600_000;
/** Larger output is a fault of the program. */
const OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024;
const PROGRAM_TIMEOUT_MS = 240_000;

/** Files of a certificate. */
export interface CertificateFiles {
  readonly cert: string;
  readonly key: string;
  readonly roots: string;
}

/** The output and status of a program. */
export interface ProgramResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** A mesh for other implementations. */
export class PeerMesh {
  readonly mesh: TestMesh;
  readonly #scratch: string;
  #issued = 0;

  private constructor(mesh: TestMesh, scratch: string) {
    this.mesh = mesh;
    this.#scratch = scratch;
  }

  /** Brings up the default pods on two nodes. */
  static async up(options: MeshOptions = {}): Promise<PeerMesh> {
    const scratch = await makeScratch('interop');
    return new PeerMesh(await TestMesh.up(options), scratch);
  }

  async down(): Promise<void> {
    await this.mesh.down();
    await rm(this.#scratch, { recursive: true });
  }

  /** Issues a certificate as the mesh's own authority would. */
  async certificate(account: string, names: readonly string[] = []): Promise<CertificateFiles> {
    this.#issued += 1;
    const dir = join(this.mesh.directory, 'ca');
    const kept = (await readdir(dir)).find((name) => name.startsWith('authority-'));
    const path = join(dir, present(kept, 'the CA has made its root'));
    const { signing } = parseState(await readFile(path, 'utf8'), path);
    const issuer = {
      certificate: new X509Certificate(signing.certificatePem),
      key: createPrivateKey(signing.keyPem),
    };
    const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const leaf = await issueLeaf(issuer, {
      publicKey,
      names: [
        { kind: 'uri', value: `spiffe://cluster.local/${account}` },
        ...names.map((value) => ({ kind: 'dns' as const, value })),
      ],
      notBeforeMs: Date.now() - HOUR_MS,
      notAfterMs: Date.now() + HOUR_MS,
    });
    const file = (name: string): string => join(this.#scratch, `${this.#issued}-${name}.pem`);
    await writeFile(file('cert'), leaf);
    await writeFile(file('key'), privateKey.export({ format: 'pem', type: 'sec1' }));
    await writeFile(file('roots'), issuer.certificate.toString());
    return { cert: file('cert'), key: file('key'), roots: file('roots') };
  }

  /** Returns the address of a pod of the demo namespace. */
  async address(pod: string): Promise<string> {
    return (await this.mesh.pod('demo', pod)).ip;
  }

  /** Runs a program in a node's network to its end, with `input` on its standard input. */
  async run(
    node: string,
    input: string,
    program: string,
    ...args: string[]
  ): Promise<ProgramResult> {
    const child = run('nsenter', [`--net=${this.mesh.netns(node)}`, program, ...args], {
      maxBuffer: OUTPUT_LIMIT_BYTES,
      timeout: PROGRAM_TIMEOUT_MS,
    });
    // A program may end before it has read its input; its output decides.
    child.child.stdin?.on('error', () => undefined);
    child.child.stdin?.end(input);
    try {
      return { code: 0, ...(await child) };
    } catch (error) {
      const failed = error as { code?: number | null; stdout?: string; stderr?: string };
      return { code: failed.code ?? -1, stdout: failed.stdout ?? '', stderr: failed.stderr ?? '' };
    }
  }
}
