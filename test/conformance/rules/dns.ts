import { rule } from '../rule.ts';
import type { Specification } from '../rule.ts';

/** The DNS proxy. */
export const dns: Specification = {
  file: 'dns.md',
  title: 'DNS',
  rules: [
    rule('1', 'UDP and TCP per pod, capture setting, unknown client, other opcodes', {
      deviates: 'dns-forwarding',
    }),
    rule('2.1', 'types other than A and AAAA are forwarded'),
    rule('2.2', 'aliases in order, without repetition'),
    rule('2.3', 'exact and wildcard candidates; visibility; which service is picked'),
    rule('2.4', 'no hit is forwarded'),
    rule('2.5', 'a hit is answered here'),
    rule('3', 'expansions by number of labels and stripped search domains'),
    rule('4', 'flags, TTL, families, empty answers, CNAME of stripped names, EDNS'),
    rule('5', "forwarding from the pod's namespace; codes passed through; failures are SERVFAIL", {
      deviates: 'dns-forwarding',
    }),
    rule('6', 'metrics, labels, log line'),
    rule('7', 'shutdown, graceful and immediate'),
  ],
};
