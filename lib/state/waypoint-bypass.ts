import { oneOf } from '../config/fields.ts';

/** What becomes of inbound traffic that did not come by the waypoint its destination names. */
export type WaypointBypass = 'deny' | 'allow';

/** Settings of everything that carries or explains such traffic (docs/decisions/waypoint-enforcement.md). */
export const waypointVariables = {
  WEFT_XDS_CONTROL_PLANE: {
    schema: oneOf('istio', 'weft')({ default: 'istio' }),
    description:
      'whose control plane the mesh follows; decides WEFT_WAYPOINT_BYPASS where that is unset: allow under istio, deny under weft',
    when: "the mesh state comes from Weft's own control plane (weft)",
  },
  WEFT_WAYPOINT_BYPASS: {
    schema: oneOf('deny', 'allow')({ optional: true }),
    description:
      'inbound traffic that did not come by the waypoint its destination names; default by WEFT_XDS_CONTROL_PLANE',
    when: 'scrapes or gateways have to reach pods behind a waypoint directly (allow), or must not (deny)',
  },
} as const;

/** What {@link waypointVariables} say. */
export interface WaypointValues {
  readonly WEFT_XDS_CONTROL_PLANE: 'istio' | 'weft';
  readonly WEFT_WAYPOINT_BYPASS: WaypointBypass | null;
}

/** What applies: the explicit setting, else the custom of the control plane. Never what traffic looks like. */
export function waypointBypass(values: WaypointValues): WaypointBypass {
  return (
    values.WEFT_WAYPOINT_BYPASS ?? (values.WEFT_XDS_CONTROL_PLANE === 'weft' ? 'deny' : 'allow')
  );
}
