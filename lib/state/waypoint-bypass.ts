import { oneOf } from '../config/fields.ts';

/** The treatment of inbound traffic that did not come through the waypoint of its destination. */
export type WaypointBypass = 'deny' | 'allow';

/** Settings of the actors that carry or explain such traffic (docs/decisions/waypoint-enforcement.md). */
export const waypointVariables = {
  WEFT_XDS_CONTROL_PLANE: {
    schema: oneOf('istio', 'weft')({ default: 'istio' }),
    description:
      'the control plane that the mesh follows; istio lets traffic past a waypoint, weft refuses it, unless WEFT_WAYPOINT_BYPASS says otherwise',
    when: "Weft's own control plane runs the mesh: set weft on every node proxy and policy evaluator, or nothing enforces waypoints",
  },
  WEFT_WAYPOINT_BYPASS: {
    schema: oneOf('deny', 'allow')({ optional: true }),
    description:
      'refuse (deny) or let in (allow) inbound traffic that did not come by the waypoint its destination names; WEFT_XDS_CONTROL_PLANE sets the default',
    when: "scrapes or gateways must reach pods behind a waypoint directly under Weft's control plane (allow), or must not under Istio's (deny)",
  },
} as const;

/** The parsed values of {@link waypointVariables}. */
export interface WaypointValues {
  readonly WEFT_XDS_CONTROL_PLANE: 'istio' | 'weft';
  readonly WEFT_WAYPOINT_BYPASS: WaypointBypass | null;
}

/** Returns the explicit setting, else the default of the control plane; traffic never changes it. */
export function waypointBypass(values: WaypointValues): WaypointBypass {
  return (
    values.WEFT_WAYPOINT_BYPASS ?? (values.WEFT_XDS_CONTROL_PLANE === 'weft' ? 'deny' : 'allow')
  );
}
