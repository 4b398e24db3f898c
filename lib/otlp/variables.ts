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

/** Variables for all signals and for each signal; the latter override the former. */
const endpointVariables = {
  OTEL_EXPORTER_OTLP_ENDPOINT: optional(
    'where traces, metrics and access logs are sent, as http://host:4318; nothing is when unset',
  ),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: optional('whole URL for traces'),
  OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: optional('whole URL for metrics'),
  OTEL_EXPORTER_OTLP_LOGS_ENDPOINT: optional('whole URL for access logs'),
  OTEL_EXPORTER_OTLP_HEADERS: optional('headers of each request: name=value,…, percent-encoded'),
  OTEL_EXPORTER_OTLP_TRACES_HEADERS: optional('further headers for traces'),
  OTEL_EXPORTER_OTLP_METRICS_HEADERS: optional('further headers for metrics'),
  OTEL_EXPORTER_OTLP_LOGS_HEADERS: optional('further headers for access logs'),
} as const;

const transportVariables = {
  OTEL_EXPORTER_OTLP_PROTOCOL: optional('http/protobuf, the only one that is built'),
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: optional('the same for traces'),
  OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: optional('the same for metrics'),
  OTEL_EXPORTER_OTLP_LOGS_PROTOCOL: optional('the same for access logs'),
  OTEL_EXPORTER_OTLP_TIMEOUT: {
    schema: milliseconds({ optional: true }),
    description: `milliseconds an export may take, retries included; default ${DEFAULT_EXPORT_TIMEOUT_MS}`,
  },
  OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: {
    schema: milliseconds({ optional: true }),
    description: 'the same for traces',
  },
  OTEL_EXPORTER_OTLP_METRICS_TIMEOUT: {
    schema: milliseconds({ optional: true }),
    description: 'the same for metrics',
  },
  OTEL_EXPORTER_OTLP_LOGS_TIMEOUT: {
    schema: milliseconds({ optional: true }),
    description: 'the same for access logs',
  },
  OTEL_EXPORTER_OTLP_COMPRESSION: optional('gzip or none'),
  OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: optional('the same for traces'),
  OTEL_EXPORTER_OTLP_METRICS_COMPRESSION: optional('the same for metrics'),
  OTEL_EXPORTER_OTLP_LOGS_COMPRESSION: optional('the same for access logs'),
} as const;

const tlsVariables = {
  OTEL_EXPORTER_OTLP_CERTIFICATE: optional(
    'PEM file of the roots a collector is verified against; default those of the runtime; read at the start',
  ),
  OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE: optional('the same for traces'),
  OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE: optional('the same for metrics'),
  OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE: optional('the same for access logs'),
  OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: optional('PEM file of our own chain, for mutual TLS'),
  OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE: optional('the same for traces'),
  OTEL_EXPORTER_OTLP_METRICS_CLIENT_CERTIFICATE: optional('the same for metrics'),
  OTEL_EXPORTER_OTLP_LOGS_CLIENT_CERTIFICATE: optional('the same for access logs'),
  OTEL_EXPORTER_OTLP_CLIENT_KEY: optional('PEM file of its key'),
  OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY: optional('the same for traces'),
  OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY: optional('the same for metrics'),
  OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY: optional('the same for access logs'),
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
  ...endpointVariables,
  ...transportVariables,
  ...tlsVariables,
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
