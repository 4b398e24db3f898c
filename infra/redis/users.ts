/**
 * Writes the users of a Redis for a mesh: `node infra/redis/users.ts --out DIR --nodes NAME,NAME [--prefix weft]`. `DIR/users.acl` is for
 * `aclfile`, `DIR/secrets/<user>` for `REDIS_PASSWORD_FILE` of that role. Passwords that are there already are kept: run it
 * again with more nodes, then `ACL LOAD`.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { redisUsers } from '../../lib/bus/acl.ts';
import { writeAclFiles } from '../../lib/bus/acl-files.ts';

const { values } = parseArgs({
  options: {
    out: { type: 'string' },
    nodes: { type: 'string', default: '' },
    prefix: { type: 'string', default: 'weft' },
  },
});
const nodes = values.nodes.split(',').filter((name) => name !== '');
if (values.out === undefined || !/^[A-Za-z0-9_-]{1,64}$/.test(values.prefix)) {
  process.stderr.write('usage: users.ts --out DIR --nodes NAME,NAME [--prefix weft]\n');
  process.exitCode = 2;
} else {
  await mkdir(values.out, { recursive: true, mode: 0o700 });
  const users = [...redisUsers(nodes), { name: 'admin', role: 'admin', node: null } as const];
  const aclFile = join(values.out, 'users.acl');
  const secretsDir = join(values.out, 'secrets');
  await writeAclFiles({ users, prefix: values.prefix, secretsDir, aclFile });
  process.stdout.write(`${users.map(({ name }) => name).join('\n')}\n`);
}
