import test from 'ava';
import { forwardedClient } from '../../../../lib/hbone/forwarded-client.ts';

const OWN = ['10.9.0.2', 'fd00:9::2'];

// spec: hbone.md §5
test('the client that a waypoint names is refused where no client can have the address', (t) => {
  const refused: readonly (readonly [string, RegExp])[] = [
    ['127.0.0.1', /loopback/],
    ['127.9.9.9:80', /loopback/],
    ['"[::1]:80"', /loopback/],
    ['"[::ffff:127.0.0.1]:80"', /loopback/],
    ['"[::ffff:7f00:1]"', /loopback/],
    ['"[::127.0.0.1]"', /unspecified/],
    ['0.0.0.0', /unspecified/],
    ['"[::]"', /unspecified/],
    ['"[::ffff:0.0.0.0]"', /unspecified/],
    ['224.0.0.1', /multicast/],
    ['239.255.255.255', /multicast/],
    ['255.255.255.255', /reserved/],
    ['"[ff02::1]"', /multicast/],
    ['169.254.0.9', /link-local/],
    ['"[fe80::1]:1"', /link-local/],
    ['"[::ffff:169.254.1.1]:1"', /link-local/],
    ['"169.254.7.127:1"', /probes/],
    ['"[::ffff:169.254.7.127]:1"', /probes/],
    ['"[fd16:9254:7127:1337:ffff:ffff:ffff:ffff]:1"', /probes/],
    ['10.9.0.2', /pod's own/],
    ['"[fd00:9:0::2]:5"', /pod's own/],
    ['"[::ffff:10.9.0.2]:5"', /pod's own/],
  ];
  for (const [client, what] of refused) {
    t.throws(
      () => forwardedClient(`for=10.0.0.1, for=${client};host=web`, OWN),
      { code: 'ROUTE_ILLEGAL', message: what },
      client,
    );
  }
});

test('any other client that a waypoint names is taken', (t) => {
  for (const ip of ['10.9.0.3', '1.0.0.0', '126.255.255.255', '128.0.0.1', '223.255.255.255']) {
    t.deepEqual(forwardedClient(`for="${ip}:7"`, OWN), { ip, port: 7 });
  }
  for (const ip of ['fd00:9::3', '2001:db8::1', '::1:0:0', 'fec0::1', 'fdff::1']) {
    t.deepEqual(forwardedClient(`for="[${ip}]:7"`, OWN), { ip, port: 7 });
  }
  t.is(forwardedClient('for=unknown', OWN), null);
  t.is(forwardedClient(undefined, OWN), null);
});
