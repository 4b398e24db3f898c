import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { capabilities, raiseFileLimit } from '../../lib/linux/process.ts';
import type { Logger } from '../../lib/log/logger.ts';

/**
 * What must hold before pods can be served (docs/spec/inpod.md §1): the right to enter namespaces and to mark sockets.
 * Raises the limit of open files as far as it goes. Throws CONFIG_UNSUPPORTED that names what is missing.
 */
export function checkPrivileges(log: Logger): void {
  const { netAdmin, netRaw, sysAdmin } = capabilities();
  const missing = [
    ...(sysAdmin ? [] : ["CAP_SYS_ADMIN (to enter the pods' network namespaces)"]),
    ...(netAdmin || netRaw ? [] : ['CAP_NET_ADMIN or CAP_NET_RAW (to mark sockets)']),
  ];
  if (missing.length > 0) {
    throw new MeshError('CONFIG_UNSUPPORTED', `node-proxy lacks ${missing.join(' and ')}`);
  }
  try {
    const { soft, hard } = raiseFileLimit();
    log.debug({ soft, hard }, 'file-limit.raised');
  } catch (error) {
    log.warn({ error: errorText(error) }, 'file-limit.not-raised');
  }
}
