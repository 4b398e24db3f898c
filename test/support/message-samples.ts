/**
 * One sample of every message between actors of different versions, as it is on the wire or in Redis, with its reader.
 * `node test/support/message-samples.ts` writes the samples of this version to `test/fixtures/messages`.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { boards, jobs, proxyPresenceSample, proxyPresenceSchema } from '../../lib/bus/catalog.ts';
import type { JobDefinition } from '../../lib/bus/contract.ts';
import { openEnvelope, sealEnvelope } from '../../lib/bus/envelope.ts';
import { presenceEntrySchema } from '../../lib/bus/presence.ts';
import { decodeLogEntry, decodeRow } from '../../lib/bus/rows.ts';
import { compileProgram } from '../../lib/policy/compile.ts';
import { decodeProgram, encodeProgram } from '../../lib/policy/program-codec.ts';
import { readPolicyRejection } from '../../lib/policy/rejection.ts';
import { enrolmentSchema } from '../../lib/state/enrolment.ts';
import { podRecordSchema } from '../../lib/state/pod-record.ts';
import { decodeAddress, encodeService, encodeWorkload } from '../../lib/xds/resources/address.ts';
import { decodeAuthorization, encodeAuthorization } from '../../lib/xds/resources/authorization.ts';
import {
  decodeAck,
  decodeHello,
  decodeRequest,
  encodeAck,
  encodeHello,
  encodeRequest,
} from '../../lib/zds/frames.ts';
import { authorizationFixture, serviceFixture, workloadFixture } from './model-fixtures.ts';
import { podRecord } from './pod-records.ts';

/** A message: JSON as text, bytes as base64. */
export interface MessageKind {
  readonly encoded: string;
  decode(encoded: string): unknown;
}

/** A message as a file stores it: the written form and the readers' result. */
export interface StoredSample {
  readonly encoded: string;
  readonly decoded: unknown;
}

const FOLDER = new URL('../fixtures/messages/', import.meta.url);
const VALUE = Buffer.from('what the table holds');
const SINCE = '2026-11-21T12:00:00.000Z';

function json(value: unknown, read: (value: unknown) => unknown): MessageKind {
  return { encoded: JSON.stringify(value), decode: (text) => read(JSON.parse(text)) };
}

function bytes(value: Uint8Array, read: (bytes: Uint8Array) => unknown): MessageKind {
  return {
    encoded: Buffer.from(value).toString('base64'),
    decode: (text) => read(Buffer.from(text, 'base64')),
  };
}

function job(definition: JobDefinition<unknown>): MessageKind {
  const message = { id: 'job-1', at: 1_763_726_400_000, from: 'sender', body: definition.sample };
  return json(sealEnvelope(definition, message), (value) => openEnvelope(definition, value));
}

/** Makes the kind for an entry of a table's log, which Redis stores as a flat list of fields. */
function logEntry(fields: readonly string[]): MessageKind {
  return json(fields, (value) =>
    text(decodeLogEntry((value as string[]).map((field) => Buffer.from(field)))),
  );
}

/** Replaces bytes in a value by text. */
function text(value: unknown): unknown {
  return JSON.parse(
    JSON.stringify(value, (_key, inner: unknown) =>
      isBuffer(inner) ? Buffer.from(inner.data).toString() : inner,
    ),
  ) as unknown;
}

/** True for the object that `JSON.stringify` makes of a Buffer before it calls the replacer. */
function isBuffer(value: unknown): value is { readonly type: 'Buffer'; readonly data: number[] } {
  return typeof value === 'object' && value !== null && 'type' in value && value.type === 'Buffer';
}

const program = compileProgram('set-1', [{ key: 'demo/web', policy: authorizationFixture() }]);
const info = { name: 'web', namespace: 'demo', serviceAccount: 'web' };

/** Every kind, by a permanent name. */
export const messageKinds: Readonly<Record<string, MessageKind>> = {
  ...Object.fromEntries(
    Object.values(jobs).map((one) => [`job ${one.name}`, job(one as JobDefinition<unknown>)]),
  ),
  ...Object.fromEntries(
    Object.entries(boards).map(([name, board]) => [
      `result ${name}`,
      json(board.sample, (value) => board.body.parse(value)),
    ]),
  ),
  'presence proxies': json(proxyPresenceSample, (value) => proxyPresenceSchema.parse(value)),
  'presence entry': json({ at: 1_763_726_400_000, body: proxyPresenceSample }, (value) =>
    presenceEntrySchema(proxyPresenceSchema).parse(value),
  ),
  'table row': bytes(Buffer.concat([Buffer.from('0000000000000102', 'hex'), VALUE]), (row) =>
    text(decodeRow(Buffer.from('uid-1'), Buffer.from(row))),
  ),
  'table change': logEntry(['e', 'e1', 'v', '7', 'o', 's', 'k', 'uid-1', 'b', String(VALUE)]),
  'table removal': logEntry(['e', 'e1', 'v', '8', 'o', 'd', 'k', 'uid-1', 'b', '']),
  'table epoch': logEntry(['e', 'e2', 'v', '2', 'o', 'e']),
  'row addresses, workload': bytes(encodeWorkload(workloadFixture()), decodeAddress),
  'row addresses, service': bytes(encodeService(serviceFixture()), decodeAddress),
  'row authorizations': bytes(encodeAuthorization(authorizationFixture()), decodeAuthorization),
  'row programs': bytes(encodeProgram(program), (row) => decodeProgram('set-1', row)),
  'row rejections': bytes(
    Buffer.from(
      JSON.stringify({
        type: 'type.googleapis.com/istio.security.Authorization',
        name: 'demo/broken',
        reason: 'unknown match',
        at: SINCE,
      }),
    ),
    (row) => readPolicyRejection('istio.security.Authorization/demo/broken', row),
  ),
  'row enrolments': json(
    {
      podUid: 'u-1',
      namespace: 'demo',
      name: 'web-1',
      serviceAccount: 'web',
      netns: '/run/netns/web-1',
      addresses: ['10.0.0.7'],
      state: 'enabled',
      since: SINCE,
    },
    (value) => enrolmentSchema.parse(value),
  ),
  'file pod record': json(podRecord({ uid: 'web-1', netns: '/run/netns/web-1' }), (value) =>
    podRecordSchema.parse(value),
  ),
  'zds hello': bytes(encodeHello({ group: 3, state: 'draining' }), decodeHello),
  'zds hello of ztunnel': bytes(encodeHello({ group: 0, state: 'serving' }), decodeHello),
  'zds add': bytes(encodeRequest({ type: 'add', uid: 'u-1', info }), decodeRequest),
  'zds keep': bytes(encodeRequest({ type: 'keep', uid: 'u-1' }), decodeRequest),
  'zds del': bytes(encodeRequest({ type: 'del', uid: 'u-1' }), decodeRequest),
  'zds end of snapshot': bytes(
    encodeRequest({ type: 'snapshotSent', generations: true }),
    decodeRequest,
  ),
  'zds ack': bytes(encodeAck(null), decodeAck),
  'zds refusal': bytes(encodeAck('cannot bind'), decodeAck),
};

/** Returns the project's version as `0.1` for 0.1.x. */
export function currentVersion(): string {
  const manifest = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  const { version } = JSON.parse(manifest) as { version: string };
  return version.split('.').slice(0, 2).join('.');
}

/** Reads the samples of a version, by kind. */
export function storedSamples(version: string): Readonly<Record<string, StoredSample>> {
  const text = readFileSync(new URL(`${version}.json`, FOLDER), 'utf8');
  return JSON.parse(text) as Record<string, StoredSample>;
}

/** Converts a reader's result to a form that a file can store. */
export function plain(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value)) as unknown;
}

if (import.meta.main) {
  const samples = Object.fromEntries(
    Object.entries(messageKinds).map(([name, { encoded, decode }]) => [
      name,
      { encoded, decoded: decode(encoded) },
    ]),
  );
  writeFileSync(
    new URL(`${currentVersion()}.json`, FOLDER),
    `${JSON.stringify(samples, null, 2)}\n`,
  );
}
