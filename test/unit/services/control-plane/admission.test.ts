import test from 'ava';
import { conditionsToWrite } from '../../../../services/control-plane/leader/conditions.ts';
import type { ObjectStatus } from '../../../../services/control-plane/mapping/object-status.ts';
import { admit } from '../../../../services/control-plane/webhook/admission.ts';

const review = (kind: string, object: unknown, more: Readonly<Record<string, unknown>> = {}) => ({
  apiVersion: 'admission.k8s.io/v1',
  kind: 'AdmissionReview',
  request: {
    uid: 'u-1',
    kind: {
      group: kind === 'ServiceEntry' ? 'networking.istio.io' : 'security.istio.io',
      version: 'v1beta1',
      kind,
    },
    operation: 'CREATE',
    object,
    ...more,
  },
});
const policy = (spec: unknown, metadata: object = { name: 'web', namespace: 'app' }) => ({
  apiVersion: 'security.istio.io/v1beta1',
  kind: 'AuthorizationPolicy',
  metadata: { ...metadata, managedFields: [{ manager: 'kubectl' }], generation: 3 },
  spec,
  status: { whatever: true },
});

test('an object without a fault is allowed, also under a name that the API server will make', (t) => {
  t.deepEqual(admit(review('AuthorizationPolicy', policy({})))?.response, {
    uid: 'u-1',
    allowed: true,
  });
  const generated = policy({}, { generateName: 'web-', namespace: 'app' });
  t.true(admit(review('AuthorizationPolicy', generated))?.response.allowed);
});

test('a fault is refused with its field, an unknown field is a warning', (t) => {
  const spec = { action: 'DENY', future: 1, rules: [{ to: [{ operation: { ports: ['0'] } }] }] };
  const response = admit(review('AuthorizationPolicy', policy(spec)))?.response;
  t.false(response?.allowed);
  t.is(
    response?.status?.message,
    'AuthorizationPolicy is invalid: spec.rules[0].to[0].operation.ports[0]: is not a port from 1 to 65535',
  );
  t.deepEqual(response?.warnings, ['spec.future: unknown field']);
  t.true(admit(review('AuthorizationPolicy', policy({ future: 1 })))?.response.allowed);
});

test('other kinds and deletions are allowed; a body that is no review has no answer', (t) => {
  t.true(admit(review('RequestAuthentication', { metadata: {} }))?.response.allowed);
  const deleted = review('AuthorizationPolicy', null, { operation: 'DELETE' });
  t.true(admit(deleted)?.response.allowed);
  t.is(
    admit({ kind: 'AdmissionReview', apiVersion: 'admission.k8s.io/v1beta1', request: {} }),
    null,
  );
  t.is(admit('text'), null);
});

const OWNED = ['Accepted', 'Bound'];
const NOW = '2026-01-02T00:00:00Z';
const THEN = '2026-01-01T00:00:00Z';
const status = (word: 'True' | 'False', generation: number | null): ObjectStatus => ({
  kind: 'AuthorizationPolicy',
  namespace: 'app',
  name: 'web',
  generation,
  conditions: [{ type: 'Accepted', status: word, reason: 'Why', message: 'because' }],
});
const written = {
  type: 'Accepted',
  status: 'True',
  reason: 'Why',
  message: 'because',
  observedGeneration: 1,
  lastTransitionTime: THEN,
};

test('conditions are written when they differ, and keep their time while their status does', (t) => {
  t.is(conditionsToWrite(status('True', 1), [written], OWNED, NOW), null);
  const foreign = { ...written, type: 'Foreign' };
  t.is(conditionsToWrite(status('True', 1), [foreign, written], OWNED, NOW), null);
  t.like(conditionsToWrite(status('True', 2), [written], OWNED, NOW)?.[0], {
    observedGeneration: 2,
    lastTransitionTime: THEN,
  });
  t.like(conditionsToWrite(status('False', 1), [written], OWNED, NOW)?.[0], {
    lastTransitionTime: NOW,
  });
});

test('conditions that no longer apply are removed, others stay', (t) => {
  t.deepEqual(conditionsToWrite(null, [written], OWNED, NOW), []);
  t.is(conditionsToWrite(null, [{ ...written, type: 'Foreign' }], OWNED, NOW), null);
});
