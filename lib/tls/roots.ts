import { readFile } from 'node:fs/promises';
import { getCACertificates } from 'node:tls';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import { parseCertificates } from './pem.ts';

/** The source of trust roots: `CA_ROOT_CA`, `XDS_ROOT_CA` (docs/spec/control.md §1). */
export type RootSource =
  | { readonly kind: 'file'; readonly path: string }
  | { readonly kind: 'system' }
  | { readonly kind: 'pem'; readonly pem: string };

/** Parses a setting: `SYSTEM` is the machine's store, a value with PEM is the roots themselves, any other is a path. */
export function parseRootSource(value: string): RootSource {
  if (value === 'SYSTEM') return { kind: 'system' };
  if (value.includes('-----BEGIN')) return { kind: 'pem', pem: value };
  return { kind: 'file', path: value };
}

/** Reads the current roots, PEM. Throws IDENTITY_INVALID that names the source when there are none. */
export async function readRoots(source: RootSource): Promise<string> {
  switch (source.kind) {
    case 'system':
      return getCACertificates('system').join('\n');
    case 'pem':
      parseCertificates(source.pem, 'the configured root');
      return source.pem;
    case 'file':
      return readRootFile(source.path);
  }
}

async function readRootFile(path: string): Promise<string> {
  let pem: string;
  try {
    pem = await readFile(path, 'utf8');
  } catch (error) {
    throw new MeshError('IDENTITY_INVALID', `cannot read the root file: ${errorText(error)}`, {
      cause: error,
      detail: { path },
    });
  }
  parseCertificates(pem, `the root file ${path}`);
  return pem;
}
