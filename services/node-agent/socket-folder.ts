/** Keeps the folder of the ZDS socket from other users. */
import { chmod, mkdir, readdir, stat } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import type { Logger } from '../../lib/log/logger.ts';
import type { NodeAgentConfig } from './config.ts';

/** Only its own user may look into the folder. */
const OWN_USER = 0o700;
const OF_OTHERS = 0o077;
/** Locks of the programs that write rules and the socket of weft-runtime, beside the socket of proxies. */
const BESIDE = /^(?:xtables-.*\.lock|weft-runtime\.sock)$/;

/**
 * Makes the socket's folder, or takes the rights of other users from one that is there, as kubelet makes it: proxies run as the
 * agent's user, foreign ones too. A folder of another user, or with more in it than sockets, locks and records of pods, stays as it is,
 * with a warning: it may be `/run`. Throws the file system's errors.
 */
export async function keepSocketFolder(
  { socketPath, pods }: Pick<NodeAgentConfig, 'socketPath' | 'pods'>,
  log: Logger,
): Promise<void> {
  const folder = dirname(socketPath);
  await mkdir(folder, { recursive: true });
  const { uid, mode } = await stat(folder);
  if ((mode & OF_OTHERS) === 0) return;
  const own = [socketPath, ...(pods.kind === 'directory' ? [pods.path] : [])];
  const known = new Set(
    own.filter((path) => dirname(path) === folder).map((path) => basename(path)),
  );
  const foreign = (await readdir(folder)).filter((name) => !known.has(name) && !BESIDE.test(name));
  if (uid === process.geteuid?.() && foreign.length === 0) {
    await chmod(folder, OWN_USER);
    return;
  }
  const facts = { folder, mode: (mode & 0o7777).toString(8), uid, foreign: foreign.slice(0, 3) };
  log.warn(facts, 'agent.shared-socket-folder');
}
