import test from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { RawSocket } from '../../../../lib/net/raw-socket.ts';
import { Arrival } from '../../../../workers/listener/same-node/server.ts';
import type { AskedMessage } from '../../../../workers/listener/same-node/messages.ts';
import { socketPair } from '../../../support/socket-pair.ts';

const end = { ip: '127.0.0.1', port: 1 };
const request = {
  pod: 'demo/api/api',
  workloadUid: 'api',
  authority: '127.0.0.1:80',
  headers: {},
  source: end,
  dialled: end,
  identity: 'spiffe://cluster.local/ns/demo/sa/web',
  expectedIdentities: [],
};

test('an application that cannot be handed over is closed, and the request can still be refused', async (t) => {
  const said: AskedMessage[] = [];
  const arrival = new Arrival(1, request, (message) => said.push(message));
  const { near } = await socketPair(t);
  // The kernel refuses a second descriptor in the same way.
  near.end();
  const carried = arrival.carry(new RawSocket(near), { headers: {}, head: null });
  t.true((await t.throwsAsync(carried)) instanceof MeshError);
  t.true(near.destroyed);
  arrival.refuse(503);
  await arrival.over;
  t.deepEqual(said, [{ type: 'refuse', id: 1, status: 503 }]);
});

test('an application that nobody takes over sees a reset', async (t) => {
  const arrival = new Arrival(1, request, () => {});
  const { near, far } = await socketPair(t);
  far.resume();
  const reset = new Promise((resolve) => far.once('error', resolve));
  const carried = arrival.carry(new RawSocket(near), { headers: {}, head: null });
  arrival.cancel();
  t.is(await carried, null);
  t.is(((await reset) as NodeJS.ErrnoException).code, 'ECONNRESET');
});
