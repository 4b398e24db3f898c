import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { readIfPresent, replaceFile } from '../files/atomic-file.ts';
import { renderUsersAcl } from './acl.ts';
import type { RedisUser } from './acl.ts';

const PASSWORD_BYTES = 32;

/** The password files of a Redis. */
export interface AclFiles {
  /** Password file (0600) by user name. */
  readonly passwordFiles: ReadonlyMap<string, string>;
}

/**
 * Makes a random password for each user that has none yet in `secretsDir` (one file per user, 0600) and
 * writes the ACL file. Existing passwords are kept, so running clients stay valid.
 */
export async function writeAclFiles(options: {
  readonly users: readonly RedisUser[];
  readonly prefix: string;
  readonly secretsDir: string;
  readonly aclFile: string;
  /** Lets the group of the calling process read the passwords. */
  readonly groupReads?: boolean;
}): Promise<AclFiles> {
  const groupReads = options.groupReads ?? false;
  await mkdir(options.secretsDir, { recursive: true, mode: groupReads ? 0o750 : 0o700 });
  const passwords = new Map<string, string>();
  const passwordFiles = new Map<string, string>();
  for (const user of options.users) {
    const path = join(options.secretsDir, user.name);
    passwordFiles.set(user.name, path);
    passwords.set(user.name, await ensurePassword(path, groupReads ? 0o640 : 0o600));
  }
  await replaceFile(
    options.aclFile,
    renderUsersAcl(options.users, passwords, options.prefix),
    0o600,
  );
  return { passwordFiles };
}

async function ensurePassword(path: string, mode: number): Promise<string> {
  const existing = (await readIfPresent(path))?.trim() ?? '';
  if (existing !== '') return existing;
  const password = randomBytes(PASSWORD_BYTES).toString('base64url');
  await replaceFile(path, `${password}\n`, mode);
  return password;
}
