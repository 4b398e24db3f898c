import { rule } from '../rule.ts';
import type { Specification } from '../rule.ts';

/** Pods handed over by a node agent. */
export const inpod: Specification = {
  file: 'inpod.md',
  title: 'In-pod mode',
  rules: [
    rule('1', 'start-up checks: namespaces, marks, descriptor limit; state before pods'),
    rule('2', 'the socket, the frames, descriptors, what is a protocol error'),
    rule('3', 'the session: snapshot, keep, delete, acknowledgement, reconnect', {
      deviates: 'zds-sessions',
    }),
    rule('4.1', 'the same namespace again changes nothing'),
    rule('4.2', 'another namespace for a known pod replaces it'),
    rule('4.3', 'all listeners or none'),
    rule('4.4', 'a failed start is retried and keeps the proxy not ready'),
    rule('5', 'sockets made inside the namespace, their options and marks'),
    rule('5.1', 'the redirection rules', { deviates: 'in-pod-rules' }),
    rule('6', 'immediate and graceful drain, deadlines', { deviates: 'un-enrolment' }),
    rule('7', 'readiness'),
    rule('8', 'the pods in the configuration dump'),
    rule('9', 'workload_manager metrics'),
    rule('10', 'threads', { outside: 'informative; Weft has its own, see ARCHITECTURE.md' }),
  ],
};
