/** Tests a machine whose mounts propagate, as systemd sets them up on most developers' machines. */
import { execFile } from 'node:child_process';
import { access } from 'node:fs/promises';
import { promisify } from 'node:util';
import { meshName } from '../../support/leftovers.ts';
import { netnsTest } from '../../support/netns-test.ts';
import { userEnvironment } from '../../support/user-environment.ts';

const WEFT = new URL('../../../services/cli/weft', import.meta.url).pathname;
/** The mounts are only visible inside the namespace in which the mesh ran. */
const SCRIPT = `
trap '"$0" down' EXIT
"$0" up --detach --wait --timeout 240s || exit
echo "pod: $("$0" exec demo/client -- cat /etc/hosts | grep -c api.demo)"
"$0" down || exit
trap - EXIT
echo "mounts left: $(grep -c "$WEFT_MESH" /proc/self/mountinfo)"`;

netnsTest('a mesh comes up and goes completely where mounts are shared', async (t) => {
  t.timeout(290_000);
  const mesh = meshName();
  const { stdout } = await promisify(execFile)(
    'unshare',
    ['--mount', '--propagation=shared', 'sh', '-c', SCRIPT, WEFT],
    { env: { ...userEnvironment(), WEFT_MESH: mesh } },
  );
  t.regex(stdout, /^pod: [1-9]/m);
  t.regex(stdout, /^mounts left: 0$/m);
  await t.throwsAsync(access(`/run/weft-${mesh}`), { code: 'ENOENT' });
});
