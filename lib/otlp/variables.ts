/** The variables of the OpenTelemetry specification that configure the export. */
import { integer, makeField, oneOf, text } from '../config/fields.ts';
import {
  DEFAULT_BATCH_ITEMS,
  DEFAULT_EXPORT_TIMEOUT_MS,
  DEFAULT_LOG_DELAY_MS,
  DEFAULT_METRIC_INTERVAL_MS,
  DEFAULT_QUEUE_ITEMS,
  DEFAULT_SPAN_DELAY_MS,
  MAX_QUEUE_ITEMS,
} from './limits.ts';

const DAY_MS = 86_400_000;
const milliseconds = integer({ min: 1, max: DAY_MS });
const items = integer({ min: 1, max: MAX_QUEUE_ITEMS });

/** A word that the specification reads in any case. */
const word = makeField((value) => value.toLowerCase());

const optional = (description: string) => ({ schema: text({ optional: true }), description });

/** The variable of this kind for all signals, and those for each signal, which override it. */
type Names<Kind extends string> =
  `OTEL_EXPORTER_OTLP_${'' | 'TRACES_' | 'METRICS_' | 'LOGS_'}${Kind}`;

/** Declares the four variables of a kind; `own` and the name of a signal describe those of one signal. */
function ofSignals<Kind extends string, Schema>(
  kind: Kind,
  schema: Schema,
  description: string,
  own = 'the same for',
): Readonly<Record<Names<Kind>, { readonly schema: Schema; readonly description: string }>> {
  const one = (signal: string, text: string) =>
    [`OTEL_EXPORTER_OTLP_${signal}${kind}`, { schema, description: text }] as const;
  return Object.fromEntries([
    one('', description),
    one('TRACES_', `${own} traces`),
    one('METRICS_', `${own} metrics`),
    one('LOGS_', `${own} access logs`),
  ]) as ReturnType<typeof ofSignals<Kind, Schema>>;
}

const anyText = text({ optional: true });

const targetVariables = {
  ...ofSignals(
    'ENDPOINT',
    anyText,
    'where traces, metrics and access logs are sent, as http://host:4318; nothing is when unset',
    'whole URL for',
  ),
  ...ofSignals(
    'HEADERS',
    anyText,
    'headers of each request: name=value,…, percent-encoded',
    'further headers for',
  ),
  ...ofSignals('PROTOCOL', anyText, 'http/protobuf, the only one that is built'),
  ...ofSignals(
    'TIMEOUT',
    milliseconds({ optional: true }),
    `milliseconds an export may take, retries included; default ${DEFAULT_EXPORT_TIMEOUT_MS}`,
  ),
  ...ofSignals('COMPRESSION', anyText, 'gzip or none'),
  ...ofSignals(
    'CERTIFICATE',
    anyText,
    'PEM file of the roots a collector is verified against; default those of the runtime; read at the start',
  ),
  ...ofSignals('CLIENT_CERTIFICATE', anyText, 'PEM file of our own chain, for mutual TLS'),
  ...ofSignals('CLIENT_KEY', anyText, 'PEM file of its key'),
} as const;

const queueVariables = {
  OTEL_BSP_MAX_QUEUE_SIZE: {
    schema: items({ default: DEFAULT_QUEUE_ITEMS }),
    description: 'spans that may wait for the collector; more are dropped and counted',
  },
  OTEL_BSP_MAX_EXPORT_BATCH_SIZE: {
    schema: items({ default: DEFAULT_BATCH_ITEMS }),
    description: 'spans of one request',
  },
  OTEL_BSP_SCHEDULE_DELAY: {
    schema: milliseconds({ default: DEFAULT_SPAN_DELAY_MS }),
    description: 'milliseconds that spans wait for others',
  },
  OTEL_BLRP_MAX_QUEUE_SIZE: {
    schema: items({ default: DEFAULT_QUEUE_ITEMS }),
    description: 'access lines that may wait for the collector; more are dropped and counted',
  },
  OTEL_BLRP_MAX_EXPORT_BATCH_SIZE: {
    schema: items({ default: DEFAULT_BATCH_ITEMS }),
    description: 'access lines of one request',
  },
  OTEL_BLRP_SCHEDULE_DELAY: {
    schema: milliseconds({ default: DEFAULT_LOG_DELAY_MS }),
    description: 'milliseconds that access lines wait for others',
  },
} as const;

/** All variables; without an endpoint none has an effect. */
export const otlpVariables = {
  OTEL_SDK_DISABLED: {
    schema: word({ default: 'false' }),
    description: 'true: nothing is exported',
  },
  ...targetVariables,
  OTEL_TRACES_EXPORTER: {
    schema: oneOf('otlp', 'none')({ default: 'otlp' }),
    description: 'none: no traces, whatever the endpoints',
  },
  OTEL_METRICS_EXPORTER: {
    schema: oneOf('otlp', 'none')({ default: 'otlp' }),
    description: 'none: no metrics',
  },
  OTEL_LOGS_EXPORTER: {
    schema: oneOf('otlp', 'none')({ default: 'otlp' }),
    description: 'none: no access logs',
  },
  OTEL_SERVICE_NAME: optional('service.name of the process; default weft-<actor>'),
  OTEL_RESOURCE_ATTRIBUTES: optional(
    'attributes of all that is sent: name=value,…, percent-encoded',
  ),
  OTEL_TRACES_SAMPLER: {
    schema: oneOf(
      'always_on',
      'always_off',
      'traceidratio',
      'parentbased_always_on',
      'parentbased_always_off',
      'parentbased_traceidratio',
    )({ default: 'parentbased_always_on' }),
    description:
      'which connections become spans; both ends of a tunnel decide alike by the trace id',
  },
  OTEL_TRACES_SAMPLER_ARG: optional('share for traceidratio, 0 to 1; default 1'),
  OTEL_METRIC_EXPORT_INTERVAL: {
    schema: milliseconds({ default: DEFAULT_METRIC_INTERVAL_MS }),
    description: 'milliseconds between exports of metrics',
  },
  ...queueVariables,
} as const;
