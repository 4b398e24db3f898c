/** Reads the options of a pod's redirection from its annotations (docs/spec/cni.md §2.2). Pure. */
import type { RedirectOptions } from './rules.ts';

/** Settings of the node that annotations may override. */
export interface RedirectDefaults {
  readonly ipv6: boolean;
  /** Null = no proxy of this node answers DNS, so no pod may ask for the capture. */
  readonly dnsCapture: boolean | null;
  readonly probeAddress: RedirectOptions['probeAddress'];
}

/** Options, and warnings about ignored annotations. */
export interface PodRedirect {
  readonly options: RedirectOptions;
  readonly warnings: readonly string[];
}

/** Interfaces that an annotation may name; more than any pod has, because each adds two rules. */
const MAX_VIRTUAL_INTERFACES = 16;
/** An interface name of at most 15 bytes, or a prefix that ends in `+`, as iptables takes it. */
const INTERFACE_NAME = /^[A-Za-z0-9_.@-]{1,15}\+?$/;

/** Reads the annotations. One that is not understood keeps the default and gets a warning. */
export function podRedirect(
  annotations: Readonly<Record<string, string>>,
  defaults: RedirectDefaults,
): PodRedirect {
  const warnings: string[] = [];
  const flag = (name: string, fallback: boolean): boolean => {
    const text = annotations[name];
    if (text === undefined) return fallback;
    if (/^(?:true|t|1)$/i.test(text)) return true;
    if (/^(?:false|f|0)$/i.test(text)) return false;
    warnings.push(`annotation ${name} must be true or false, got ${JSON.stringify(text)}`);
    return fallback;
  };
  const options: RedirectOptions = {
    ipv6: defaults.ipv6,
    probeAddress: defaults.probeAddress,
    dnsCapture: dnsCapture(flag, defaults.dnsCapture, warnings),
    bypassInboundCapture: flag('ambient.istio.io/bypass-inbound-capture', false),
    virtualInterfaces: virtualInterfaces(annotations, warnings),
  };
  return { options, warnings };
}

function dnsCapture(
  flag: (name: string, fallback: boolean) => boolean,
  fallback: boolean | null,
  warnings: string[],
): boolean {
  const name = 'ambient.istio.io/dns-capture';
  const wanted = flag(name, fallback ?? false);
  if (!wanted || fallback !== null) return wanted;
  warnings.push(`annotation ${name} is ignored: AMBIENT_DNS_CAPTURE is not set on this node`);
  return false;
}

function virtualInterfaces(
  annotations: Readonly<Record<string, string>>,
  warnings: string[],
): readonly string[] {
  const name = 'istio.io/reroute-virtual-interfaces';
  const names = (annotations[name] ?? '')
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '');
  const valid = names.filter((item) => INTERFACE_NAME.test(item) && item.length <= 15);
  for (const item of names) {
    if (!valid.includes(item)) {
      warnings.push(`annotation ${name}: ${JSON.stringify(item)} is no interface name`);
    }
  }
  if (valid.length > MAX_VIRTUAL_INTERFACES) {
    warnings.push(`annotation ${name}: only the first ${MAX_VIRTUAL_INTERFACES} are used`);
  }
  return valid.slice(0, MAX_VIRTUAL_INTERFACES);
}
