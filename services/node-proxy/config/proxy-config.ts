import * as z from 'zod';
import { yaml } from '../../../lib/config/yaml.ts';

/** The part of Istio's ProxyConfig that concerns a node proxy (docs/spec/observability.md §6). */
export interface ProxyConfig {
  readonly proxyAdminPort: number | null;
  readonly statsPort: number | null;
  /** 0 = all cores. */
  readonly concurrency: number | null;
  readonly proxyMetadata: Readonly<Record<string, string>>;
}

/** Longest PROXY_CONFIG accepted; usual ones have a few hundred bytes. */
const MAX_PROXY_CONFIG_BYTES = 65_536;

const port = z.int().min(0).max(65_535);

/** Unknown keys are ignored, as upstream does, because other fields of ProxyConfig belong to sidecars. */
const schema = z.object({
  proxyAdminPort: port.optional(),
  statsPort: port.optional(),
  concurrency: z.int().min(0).max(4_096).optional(),
  proxyMetadata: z.record(z.string(), z.string(), { error: 'is required and maps names to texts' }),
});

/** Parses a ProxyConfig in YAML or JSON. Throws an Error that names the field and what is wrong with it. */
export function parseProxyConfig(text: string): ProxyConfig {
  if (Buffer.byteLength(text) > MAX_PROXY_CONFIG_BYTES) {
    throw new Error(`must not be longer than ${MAX_PROXY_CONFIG_BYTES} bytes`);
  }
  const document: unknown = yaml().parse(text);
  const result = schema.safeParse(document);
  if (!result.success) {
    const reasons = result.error.issues.map((issue) =>
      [issue.path.join('.'), issue.message].filter((part) => part !== '').join(' '),
    );
    throw new Error(`is not a ProxyConfig: ${reasons.join(', ')}`);
  }
  const value = result.data;
  return {
    proxyAdminPort: value.proxyAdminPort ?? null,
    statsPort: value.statsPort ?? null,
    concurrency: value.concurrency ?? null,
    proxyMetadata: value.proxyMetadata,
  };
}
