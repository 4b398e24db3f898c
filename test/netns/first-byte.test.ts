/** Tests the time to the first byte of the answer when the kernel carries the bytes. */
import { TestMesh } from '../support/listener-kit.ts';
import type { TestPod } from '../support/listener-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { closed, heard } from '../support/tcp-talk.ts';
import { until } from '../support/until.ts';

const HISTOGRAM = 'weft_first_byte_duration_seconds_count';

test('the first byte is timed on spliced ways too, while they live and at their end', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 2, sameNodeFastPath: true });
  const client = await mesh.addPod('client');
  const web = await mesh.addPod('web', { thread: 1 });
  const outside = await mesh.addPod('outside', { enrolled: false });
  const answer = Buffer.from('answer');
  for (const pod of [web, outside]) {
    await pod.serve(8080, (socket) => {
      socket.on('error', () => undefined);
      socket.once('data', () => socket.end(answer)).resume();
    });
  }
  const counts = async (): Promise<number[]> => [
    await mesh.metric(HISTOGRAM, { reporter: 'source' }),
    await mesh.metric(HISTOGRAM, { reporter: 'destination' }),
  ];
  const ways: [string, TestPod, TestPod, number[]][] = [
    ['passthrough out', client, outside, [1, 0]],
    ['passthrough in', outside, web, [0, 1]],
    ['same node', client, web, [1, 1]],
  ];
  for (const [way, from, to, expected] of ways) {
    const before = await counts();
    const socket = await from.connect(to.ip, 8080);
    socket.write('question');
    t.is(await heard(socket), 'answer', way);
    // The client has not closed, so both ends report it for a live connection.
    const live = await until(
      async () => {
        const records = await mesh.connections();
        return records.every(({ steps }) => steps.firstByteMs !== null) ? records : null;
      },
      { what: `the first byte of ${way}` },
    );
    t.is(live.length, expected[0] === 1 && expected[1] === 1 ? 2 : 1, way);
    socket.end();
    await closed(socket);
    await until(async () => (await mesh.connections()).length === 0, { what: `the end of ${way}` });
    const now = await counts();
    t.deepEqual(
      now.map((count, index) => count - (before[index] ?? 0)),
      expected,
      way,
    );
  }
});
