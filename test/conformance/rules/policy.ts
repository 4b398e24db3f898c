import { rule } from '../rule.ts';
import type { Specification } from '../rule.ts';

/** Authorization. */
export const policy: Specification = {
  file: 'policy.md',
  title: 'Policy',
  rules: [
    rule('1', 'the resource, its nesting, what cannot be converted', {
      deviates: 'strict-policy-decoding',
    }),
    rule('2', 'which policies apply to a workload', { deviates: 'policy-fails-closed' }),
    rule('3', 'order: dry run, DENY, ALLOW'),
    rule('4', 'rules, clauses, matches, attributes, string and address forms'),
    rule('5', 'peers without identity'),
    rule('6', 'what a denial does on each path and what is recorded'),
    rule('7', 'live connections are judged again', { deviates: 'live-policy' }),
    rule('8', 'the 48 cases'),
  ],
};
