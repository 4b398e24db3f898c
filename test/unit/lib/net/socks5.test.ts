import test from 'ava';
import * as fc from 'fast-check';
import { SocksNegotiation, socksGranted, socksRefused } from '../../../../lib/net/socks5.ts';
import type { SocksStep } from '../../../../lib/net/socks5.ts';

const GREETING = Buffer.of(5, 1, 0);
const V4 = Buffer.of(5, 1, 0, 1, 10, 0, 0, 1, 0, 80);

/** Runs a negotiation with bytes in pieces of the given size, and returns all steps. */
function steps(bytes: Buffer, size = bytes.length): SocksStep[] {
  const negotiation = new SocksNegotiation();
  const out: SocksStep[] = [];
  for (let at = 0; at < bytes.length; at += size) {
    negotiation.push(bytes.subarray(at, at + size));
    for (;;) {
      const step = negotiation.next();
      if (step.kind === 'more') break;
      out.push(step);
      if (step.kind !== 'send') return out;
    }
  }
  return out;
}

function last(bytes: Buffer): SocksStep | undefined {
  return steps(bytes).at(-1);
}

test('a greeting that offers no authentication is answered 05 00 (spec: dataplane.md §12)', (t) => {
  t.deepEqual(steps(GREETING), [{ kind: 'send', bytes: Buffer.of(5, 0) }]);
  t.deepEqual(steps(Buffer.of(5, 3, 2, 1, 0)), [{ kind: 'send', bytes: Buffer.of(5, 0) }]);
});

test('requests by address and by name are understood, what follows them is kept (spec: dataplane.md §12)', (t) => {
  t.deepEqual(last(Buffer.concat([GREETING, V4, Buffer.from('GET')])), {
    kind: 'request',
    target: { kind: 'ip', ip: '10.0.0.1', port: 80 },
    rest: Buffer.from('GET'),
  });
  const v6 = Buffer.concat([
    Buffer.of(5, 1, 0, 4),
    Buffer.from(`fd00${'00'.repeat(13)}01`, 'hex'),
    Buffer.of(1, 187),
  ]);
  t.like(last(Buffer.concat([GREETING, v6])), { target: { kind: 'ip', ip: 'fd00::1', port: 443 } });
  const name = Buffer.concat([Buffer.of(5, 1, 0, 3, 8), Buffer.from('web.demo'), Buffer.of(0, 80)]);
  t.like(last(Buffer.concat([GREETING, name])), {
    target: { kind: 'name', name: 'web.demo', port: 80 },
  });
});

test('however the bytes are cut, the steps are the same', (t) => {
  const bytes = Buffer.concat([GREETING, V4]);
  for (let size = 1; size <= bytes.length; size += 1) t.deepEqual(steps(bytes, size), steps(bytes));
});

test('what is not supported is refused (spec: dataplane.md §12)', (t) => {
  const refused = (...bytes: number[]): unknown => last(Buffer.of(...bytes))?.kind;
  const asked = (...bytes: number[]): unknown => refused(5, 1, 0, ...bytes);
  t.is(refused(4, 1), 'refuse');
  t.is(refused(5, 0), 'refuse');
  t.is(refused(5, 2, 1, 2), 'refuse');
  t.is(asked(4, 1), 'refuse');
  t.is(asked(5, 2), 'refuse');
  t.is(asked(5, 3), 'refuse');
  t.is(asked(5, 1, 0, 2), 'refuse');
  t.is(asked(5, 1, 0, 3, 0, 0, 80), 'refuse');
  t.is(asked(5, 1, 0, 3, 2, 97, 0, 0, 80), 'refuse');
});

test('replies have the form of the request for an IPv4 address (spec: dataplane.md §12)', (t) => {
  t.deepEqual(socksGranted(), Buffer.of(5, 0, 0, 1, 0, 0, 0, 0, 0, 0));
  t.deepEqual(socksRefused(4), Buffer.of(5, 4, 0, 1, 0, 0, 0, 0, 0, 0));
});

test('any bytes in any pieces end in a request, a refusal or a wish for more', (t) => {
  const byte = fc.oneof(fc.constantFrom(0, 1, 3, 4, 5), fc.integer({ min: 0, max: 255 }));
  fc.assert(
    fc.property(
      fc.array(byte, { maxLength: 400 }),
      fc.integer({ min: 1, max: 50 }),
      (bytes, size) => {
        for (const prefix of [[], [5, 1, 0], [5, 1, 0, 5, 1, 0]]) {
          steps(Buffer.from([...prefix, ...bytes]), size);
        }
      },
    ),
    { numRuns: 1_000 },
  );
  t.pass();
});
