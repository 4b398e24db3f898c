/** Tests the default mesh, in the order of the imports. All tests share one mesh. */
import './default/policy.ts';
import './default/traffic.ts';
import './default/pod-commands.ts';
import './default/malformed.ts';
import './default/observability.ts';
import './default/bytes.ts';
