import { defineConfig } from '../config/define-config.ts';
import { drainDeadlineMs, drainVariables } from '../config/drain.ts';
import { endpoint, makeField, oneOf, text } from '../config/fields.ts';
import type { Endpoint } from '../config/fields.ts';
import { formatLogFilter, parseLogFilter } from '../log/log-filter.ts';
import type { LogFormat } from '../log/logger.ts';
import { otlpSettings } from '../otlp/config.ts';
import type { OtlpSettings } from '../otlp/settings.ts';
import { otlpVariables } from '../otlp/variables.ts';

/** The settings of a process that hosts actors. */
export interface HostConfig {
  readonly node: string | null;
  readonly admin: Endpoint | null;
  /** The address of the metrics server. */
  readonly metrics: Endpoint | null;
  /** A level or a filter. */
  readonly logLevel: string;
  readonly logFormat: LogFormat;
  readonly drainDeadlineMs: number;
  /** The export of telemetry by OTLP; null = none. */
  readonly otlp: OtlpSettings | null;
}

/** A log filter, kept as the text it was read from. */
const logFilter = makeField((value) => formatLogFilter(parseLogFilter(value)));

/** Variables every actor process reads. */
export const hostConfig = defineConfig(
  {
    NODE_NAME: { schema: text({ optional: true }), description: 'node this process runs on' },
    WEFT_ADMIN_ADDRESS: {
      schema: endpoint({ optional: true }),
      description: 'admin server: unix:/path or host:port; none when unset',
      when: 'somebody has to look inside the process',
    },
    WEFT_METRICS_ADDRESS: {
      schema: endpoint({ optional: true }),
      description:
        'where /metrics and /healthz/ready are served to scrapers, and nothing else; none when unset',
      when: 'Prometheus scrapes the process',
    },
    RUST_LOG: {
      schema: logFilter({ default: 'info' }),
      description: 'least severe log level written, also of single targets: info,access=debug',
    },
    LOG_FORMAT: {
      schema: oneOf('json', 'plain')({ default: 'json' }),
      description: 'how log lines are written',
    },
    ...drainVariables,
    ...otlpVariables,
  },
  (values): HostConfig => ({
    node: values.NODE_NAME,
    admin: values.WEFT_ADMIN_ADDRESS,
    metrics: values.WEFT_METRICS_ADDRESS,
    logLevel: values.RUST_LOG,
    logFormat: values.LOG_FORMAT,
    drainDeadlineMs: drainDeadlineMs(values),
    otlp: otlpSettings(values),
  }),
);
