import test from 'ava';
import { proxyPresenceSample } from '../../../../lib/bus/catalog.ts';
import type { ProxyPresence } from '../../../../lib/bus/catalog.ts';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { admission } from '../../../../services/node-proxy/generation/admission.ts';
import { coveredByOthers } from '../../../../services/node-proxy/generation/handover.ts';

const web = 'spiffe://cluster.local/ns/demo/sa/web';
const api = 'spiffe://cluster.local/ns/demo/sa/api';

function other(state: ProxyPresence['state'], missing: readonly string[] = []): ProxyPresence {
  return { ...proxyPresenceSample, state, missing: [...missing] };
}

test('a proxy with every certificate begins, whoever else there is', (t) => {
  t.deepEqual(admission([], null), { admitted: true, because: 'complete' });
  t.deepEqual(admission([], [other('serving')]), { admitted: true, because: 'complete' });
});

test('a proxy that lacks certificates begins only where nobody serves', (t) => {
  t.deepEqual(admission([web], []), { admitted: true, because: 'alone' });
  const others = [other('starting'), other('draining')];
  t.deepEqual(admission([web], others), { admitted: true, because: 'alone' });
  const waits = { admitted: false, waitsFor: `1 certificates, one of ${web}` };
  t.deepEqual(admission([web], [other('serving')]), waits);
  t.deepEqual(admission([web], [other('draining'), other('serving', [api])]), waits);
});

test('a certificate that those who serve lack, too, is not waited for', (t) => {
  t.deepEqual(admission([web], [other('serving', [web])]), { admitted: true, because: 'complete' });
  t.false(admission([web], [other('serving', [web]), other('serving')]).admitted);
});

test('a proxy that does not know yet who serves waits', (t) => {
  t.like(admission([web], null), { admitted: false });
});

test('pods are covered when each port has more listeners than our own', (t) => {
  const listeners = (counts: Record<number, number>) => () =>
    new Map(Object.entries(counts).map(([port, count]) => [Number(port), count]));
  const pods = [{ netnsFd: 3, own: 2 }];
  t.true(coveredByOthers([], [1], listeners({})));
  t.false(coveredByOthers(pods, [1, 2], listeners({ 1: 2, 2: 3 })));
  t.false(coveredByOthers(pods, [1, 2], listeners({ 1: 3 })));
  t.true(coveredByOthers(pods, [1, 2], listeners({ 1: 3, 2: 3 })));
  const gone = () => {
    throw new MeshError('NATIVE_SYSCALL', 'setns');
  };
  t.true(coveredByOthers(pods, [1], gone));
});
