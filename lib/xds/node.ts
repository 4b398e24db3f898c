/** The Node message that names this client to the control plane (docs/spec/control.md §2.1). Pure. */
import type { envoy, google } from '#proto/discovery.js';

/** Identity and metadata of this client. */
export interface XdsNodeOptions {
  readonly instanceIp: string;
  readonly podName: string;
  readonly podNamespace: string;
  readonly nodeName: string;
  /** Texts of `ISTIO_META_<key>`. */
  readonly metadata: Readonly<Record<string, string>>;
  /** JSON values of `ISTIO_METAJSON_<key>`; a value replaces a text of the same key. */
  readonly jsonMetadata: Readonly<Record<string, unknown>>;
}

type NodeMessage = envoy.config.core.v3.Node.$Properties;
type ValueMessage = google.protobuf.Value.$Properties;

/** The Node of an initial request. */
export function nodeMessage(options: XdsNodeOptions): NodeMessage {
  const { instanceIp, podName, podNamespace, nodeName } = options;
  const metadata: Record<string, unknown> = {
    NAME: podName,
    NAMESPACE: podNamespace,
    INSTANCE_IPS: instanceIp,
    NODE_NAME: nodeName,
    ...options.metadata,
    ...options.jsonMetadata,
  };
  return {
    id: `ztunnel~${instanceIp}~${podName}.${podNamespace}~${podNamespace}.svc.cluster.local`,
    metadata: structMessage(metadata),
  };
}

function structMessage(
  object: Readonly<Record<string, unknown>>,
): google.protobuf.Struct.$Properties {
  return {
    fields: Object.fromEntries(
      Object.entries(object).map(([key, value]) => [key, valueMessage(value)]),
    ),
  };
}

function valueMessage(value: unknown): ValueMessage {
  if (typeof value === 'string') return { stringValue: value };
  if (typeof value === 'number') return { numberValue: value };
  if (typeof value === 'boolean') return { boolValue: value };
  if (Array.isArray(value)) return { listValue: { values: value.map(valueMessage) } };
  if (typeof value === 'object' && value !== null) {
    return { structValue: structMessage(value as Record<string, unknown>) };
  }
  return { nullValue: 0 };
}
