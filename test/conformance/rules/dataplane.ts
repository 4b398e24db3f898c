import { rule } from '../rule.ts';
import type { Specification } from '../rule.ts';

/** Listeners, routing, load balancing, sockets, copying. */
export const dataplane: Specification = {
  file: 'dataplane.md',
  title: 'Data plane',
  rules: [
    rule(
      '1',
      'ports and bind addresses, original destination, canonical addresses, own workload found by name',
    ),
    rule('2.1.1', 'a call to a loopback address on a port of the proxy itself is refused'),
    rule('2.1.2', 'the source workload is waited for up to 5 s'),
    rule(
      '2.1.3',
      'address lookup: workload by IP first, then service by VIP, for the client namespace',
    ),
    rule(
      '2.1.4',
      "a service's waypoint, weighted or single; one that cannot be resolved fails the connection",
    ),
    rule('2.1.5', 'upstream selection: service by VIP first, then workload by IP'),
    rule('2.1.6', 'no upstream: a known service fails, anything else passes through as it is'),
    rule(
      '2.1.7',
      'an upstream on another network is reached through a gateway, and only for a service',
    ),
    rule(
      '2.1.8',
      "a workload's own waypoint counts only for traffic to its address, and not for the waypoint itself",
    ),
    rule('2.1.9', 'direct: tunnel to port 15008 with the translated authority, or plain TCP'),
    rule('2.2', 'what each protocol does after the decision', { deviates: 'connect-retry' }),
    rule(
      '2.3',
      'a waypoint or gateway reference is resolved by address, by service hostname, by workload hostname',
    ),
    rule('2.4', "a gateway is ignored on the caller's own network"),
    rule('2.5.1', 'an upstream on another network without a gateway fails'),
    rule('2.5.2', 'the gateway reference is resolved like a waypoint'),
    rule('2.5.3', "the outer tunnel is pooled and accepts the gateway's identities"),
    rule('2.5.4', 'both authorities are service hostname and service port'),
    rule(
      '2.5.5',
      "the inner tunnel is not pooled and accepts the service's names alone; none at all fails",
    ),
    rule('2.5.6', 'the network header goes on the inner request only'),
    rule(
      '2.5.7',
      'baggage of the inner answer describes the destination, its certificate the principal',
    ),
    rule('2.5.8', 'the inner session ends with the copy'),
    rule('3', 'workload by address: host network never indexed, best rank wins'),
    rule('3.1', 'services by exact VIP; private ones only inside their namespace'),
    rule('3.2', 'own namespace, then canonical, then first'),
    rule('3.3', 'CIDR VIPs by longest prefix with fresh endpoints'),
    rule('4.1', 'standard mode needs the service port'),
    rule('4.2', 'endpoints that cannot be used are left out'),
    rule('4.3', 'health counts when an endpoint enters a service'),
    rule('4.4', 'routing preferences: strict, failover, network first'),
    rule('4.5', 'weighted random choice; weight 0 is never chosen'),
    rule('5', "target port: endpoint's map, service's map, application tunnel"),
    rule('6.1', 'the address asked for is kept when the workload has it'),
    rule('6.2', "the service's IP families, same family first"),
    rule('6.3', 'no address: legal only behind a gateway'),
    rule('6.4', 'a hostname is resolved, same family first, else error', {
      deviates: 'endpoint-names',
    }),
    rule(
      '7.1',
      "served with the pod's own certificate; a client certificate is demanded; SNI ignored",
      {
        deviates: 'tunnel-life',
      },
    ),
    rule('7.2.1', 'a method other than CONNECT is answered 400'),
    rule('7.2.2', 'an authority that is not host and port is answered 400'),
    rule('7.2.3', 'an unknown local workload is answered 503'),
    rule('7.2.4', 'a destination that is not ours is answered 400'),
    rule('7.2.5', 'an authority that leads nowhere is answered 503'),
    rule('7.2.6', 'policy denial is answered 401'),
    rule('7.2.7', 'an application that cannot be reached is answered 503'),
    rule('7.2.8', '200 with baggage, then the PROXY header, then bytes'),
    rule('7.3.1', 'a hostname authority is accepted'),
    rule('7.3.2', 'the address that was dialled is accepted'),
    rule('7.3.3', 'an application tunnel skips the check'),
    rule('7.3.4', "otherwise only an object whose waypoint is this workload's"),
    rule(
      '7.4',
      'port of a hostname or address authority; own ports refused; application tunnel port',
    ),
    rule(
      '7.5',
      'loopback for PROXY tunnels, client address as source elsewhere; PROXY v2 with identity',
      {
        deviates: 'waypoint-enforcement',
      },
    ),
    rule('7.6', 'the service that telemetry names'),
    rule('7.7', "an HBONE listener for the proxy's own identity in shared mode"),
    rule('8.1', "plaintext to one of the proxy's ports is refused"),
    rule('8.2', 'plaintext waits for the local workload'),
    rule('8.3', 'plaintext is judged without identity; denial closes silently'),
    rule('8.4', "plaintext keeps the client's address"),
    rule('8.5', 'plaintext is never sent to a waypoint', { deviates: 'waypoint-enforcement' }),
    rule('9', 'socket options, marks, spoofing, connect time limit', { deviates: 'removed-peers' }),
    rule('10', 'two independent directions, half-close, resets, byte counts', {
      deviates: 'abnormal-ends',
    }),
    rule('11', 'what ends live connections: policy, revocation, pod removal, shutdown'),
    rule('12', 'SOCKS5 greeting, request, replies, error codes'),
  ],
};
