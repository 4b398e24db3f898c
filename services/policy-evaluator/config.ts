import { busConfig, busVariables } from '../../lib/bus/config.ts';
import type { BusConfig } from '../../lib/bus/config.ts';
import { defineConfig } from '../../lib/config/define-config.ts';
import { bool, oneOf, text } from '../../lib/config/fields.ts';
import { waypointBypass, waypointVariables } from '../../lib/state/waypoint-bypass.ts';
import type { WaypointBypass } from '../../lib/state/waypoint-bypass.ts';

/** Configuration of the evaluator. */
export interface PolicyEvaluatorConfig {
  readonly bus: BusConfig;
  /** Network of the proxies whose decisions are explained. */
  readonly network: string;
  /** The proxies' treatment of references to unknown policies. */
  readonly unknownReference: 'deny' | 'ignore';
  /** The proxies' treatment of traffic that went around a waypoint. */
  readonly waypointBypass: WaypointBypass;
  /** Whether they connect two pods of a node without a tunnel. */
  readonly sameNodeFastPath: boolean;
}

/** Variables of the evaluator. */
export const policyEvaluatorConfig = defineConfig(
  {
    ...busVariables,
    NETWORK: { schema: text({ default: '' }), description: 'id of the network of the proxies' },
    WEFT_POLICY_UNKNOWN_REFERENCE: {
      schema: oneOf('deny', 'ignore')({ default: 'deny' }),
      description: 'what a listed policy that is not known does after 5s',
      when: 'an istiod lists policies that it never sends (ignore)',
    },
    ...waypointVariables,
    WEFT_SAME_NODE_FAST_PATH: {
      schema: bool({ default: false }),
      description: 'whether the proxies connect two pods of a node without a tunnel',
      when: 'no NetworkPolicy has to see traffic inside a node',
    },
  },
  (values): PolicyEvaluatorConfig => ({
    bus: busConfig(values),
    network: values.NETWORK,
    unknownReference: values.WEFT_POLICY_UNKNOWN_REFERENCE,
    waypointBypass: waypointBypass(values),
    sameNodeFastPath: values.WEFT_SAME_NODE_FAST_PATH,
  }),
);
