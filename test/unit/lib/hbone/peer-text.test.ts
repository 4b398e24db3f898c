import test from 'ava';
import { parseBaggage } from '../../../../lib/hbone/baggage.ts';
import { parseForwardedHost } from '../../../../lib/hbone/connect-request.ts';
import {
  MAX_AUTHORITY_LENGTH,
  MAX_BAGGAGE_LENGTH,
  MAX_BAGGAGE_VALUE_LENGTH,
  MAX_FORWARDED_LENGTH,
  cutAuthority,
  cutMethod,
  readHeaders,
} from '../../../../lib/hbone/peer-text.ts';

const text = (length: number): string => 'x'.repeat(length);

test('only headers that are read are taken, and no more of each than its longest and a character', (t) => {
  const headers = {
    ':authority': text(60_000),
    'x-anything': text(60_000),
    baggage: text(60_000),
    forwarded: text(60_000),
    traceparent: text(60_000),
    'x-forwarded-network': text(60_000),
  };
  const kept = readHeaders(headers);
  t.deepEqual(
    Object.entries(kept).map(([name, value]) => [name, value?.length]),
    [
      ['baggage', MAX_BAGGAGE_LENGTH + 1],
      ['forwarded', MAX_FORWARDED_LENGTH + 1],
      ['traceparent', 56],
      ['x-forwarded-network', 254],
    ],
  );
  t.deepEqual(readHeaders({}), {});
  t.is(readHeaders({ forwarded: text(MAX_FORWARDED_LENGTH) })['forwarded']?.length, 1_024);
});

test('an authority that is cut is still too long', (t) => {
  t.is(cutAuthority(text(MAX_AUTHORITY_LENGTH)).length, MAX_AUTHORITY_LENGTH);
  t.is(cutAuthority(text(60_000)).length, MAX_AUTHORITY_LENGTH + 1);
  t.is(cutMethod(text(60_000)).length, 32);
});

// spec: hbone.md §6
test('a baggage value is cut at its limit, and a header beyond its own counts as absent', (t) => {
  const value = text(MAX_BAGGAGE_VALUE_LENGTH);
  t.is(parseBaggage(`service.name=${value}`).canonicalName, value);
  t.is(parseBaggage(`service.name=${value}y`).canonicalName, value);
  const padded = (length: number): string => `service.name=a,x=${text(length - 17)}`;
  t.is(padded(MAX_BAGGAGE_LENGTH).length, MAX_BAGGAGE_LENGTH);
  t.is(parseBaggage(padded(MAX_BAGGAGE_LENGTH)).canonicalName, 'a');
  t.is(parseBaggage(padded(MAX_BAGGAGE_LENGTH + 1)).canonicalName, null);
});

test('a forwarded host that is longer than any name is none', (t) => {
  t.is(parseForwardedHost(`host=${text(254)}`), text(254));
  t.is(parseForwardedHost(`host=${text(255)}`), null);
});
