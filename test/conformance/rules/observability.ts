import { rule } from '../rule.ts';
import type { Specification } from '../rule.ts';

/** Metrics, logs, admin server, settings. */
export const observability: Specification = {
  file: 'observability.md',
  title: 'Observability',
  rules: [
    rule('1', 'the statistics endpoint: paths, format, compression'),
    rule('2', 'names and types of the metrics', { deviates: 'runtime-metrics' }),
    rule('2.1', 'labels of traffic and response flags'),
    rule('2.2', 'what is counted, and when'),
    rule('3', 'log formats and levels'),
    rule('3.1', 'access log: messages, levels, fields'),
    rule('3.2', 'other log lines and trace ids'),
    rule('4', 'admin server: paths, methods, answers'),
    rule('4.1', 'the configuration dump'),
    rule('5', 'readiness'),
    rule('6', 'settings and their defaults'),
  ],
};
