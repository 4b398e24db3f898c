import type { ConfigValues } from '../../../lib/config/define-config.ts';
import { makeField, text } from '../../../lib/config/fields.ts';
import { ipFamily, tryParseHostPort } from '../../../lib/net/address.ts';
import type { DnsSettings } from '../../../workers/listener/protocol/settings.ts';

/** The address of the DNS proxy; a null `address` is the loopback of both families. */
interface DnsAddress {
  readonly address: string | null;
  readonly port: number;
}

const DEFAULT_ADDRESS: DnsAddress = { address: null, port: 15_053 };

const dnsAddress = makeField(parseDnsAddress, ({ port }) => `localhost:${port}`);

/** Settings of the DNS proxy (docs/spec/observability.md §6). */
export const dnsVariables = {
  ISTIO_META_DNS_CAPTURE: {
    schema: text({ optional: true }),
    description: 'answer DNS queries of pods; true when unset, and anything but true is off',
  },
  ISTIO_META_DNS_PROXY_ADDR: {
    schema: dnsAddress({ default: DEFAULT_ADDRESS }),
    description: 'address in each pod: localhost:port for both families, or ip:port',
  },
  PREFERED_SERVICE_NAMESPACE: {
    schema: text({ optional: true }),
    description: 'namespace whose services win when several have the same host name',
  },
  WEFT_DNS_RESOLV_CONF: {
    schema: text({ default: '/etc/resolv.conf' }),
    description:
      'file that lists the name servers for all other names; asked from inside the pod, and by the proxy for endpoints that are names',
    when: "pods reach other name servers than the proxy's own",
  },
} as const;

/** Returns the DNS settings of listener threads; null when the DNS proxy is off. Variables go before proxyMetadata. */
export function dnsSettings(
  values: ConfigValues<typeof dnsVariables>,
  metadata: Readonly<Record<string, string>>,
  searchDomains: DnsSettings['searchDomains'],
): DnsSettings | null {
  const capture = values.ISTIO_META_DNS_CAPTURE ?? metadata['ISTIO_META_DNS_CAPTURE'] ?? 'true';
  if (capture.toLowerCase() !== 'true') return null;
  const inMetadata = metadata['ISTIO_META_DNS_PROXY_ADDR'];
  const own = values.ISTIO_META_DNS_PROXY_ADDR;
  const at =
    own === DEFAULT_ADDRESS && inMetadata !== undefined ? parseDnsAddress(inMetadata) : own;
  return {
    ...at,
    preferredNamespace: values.PREFERED_SERVICE_NAMESPACE,
    searchDomains,
  };
}

function parseDnsAddress(value: string): DnsAddress {
  const parsed = tryParseHostPort(value);
  const isLocalhost = parsed?.host === 'localhost';
  if (parsed === null || parsed.port === 0 || (!isLocalhost && ipFamily(parsed.host) === null)) {
    throw new Error('must be localhost:port or ip:port');
  }
  return { address: isLocalhost ? null : parsed.host, port: parsed.port };
}
