/** What the default mesh does, in the order of the imports: one mesh is brought up for all of it. */
import './default/policy.ts';
import './default/traffic.ts';
import './default/pod-commands.ts';
import './default/malformed.ts';
import './default/observability.ts';
