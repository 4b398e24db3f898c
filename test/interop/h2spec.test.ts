/** Runs every case of h2spec against a real listener on 15008, through mutual TLS. */
import test from 'ava';
import { skipReason } from '../support/netns-test.ts';
import { goProgram } from './support/go.ts';
import { PeerMesh } from './support/peer-mesh.ts';

interface CaseResult {
  readonly id: string;
  readonly description: string;
  readonly outcome: 'passed' | 'failed' | 'skipped';
  readonly why?: string;
}

const NO_BODY = 'needs a response with a body; whatever is no CONNECT is answered without one';
/** The engine contract covers these cases with an undecided request, and test/native/frames.test.cc those of windows. */
const UNDECIDED =
  'needs a request that is not answered at once; whether its second frame comes before the answer is luck';
const PRIORITIES = 'RFC 9113 §5.3 dropped priorities, and with them this rule';

/** Cases that do not apply to a listener for tunnels, with the reason. */
const NOT_APPLICABLE: Readonly<Record<string, string>> = {
  'generic/2/2': NO_BODY,
  'generic/2/3': NO_BODY,
  'http2/5.1.2/1': NO_BODY,
  'http2/5.3.1/2': PRIORITIES,
  'http2/6.5.3/1': NO_BODY,
  'http2/6.9.1/1': NO_BODY,
  'http2/6.9/2': UNDECIDED,
  'http2/6.9.1/3': UNDECIDED,
  'http2/6.9.2/1': NO_BODY,
  'http2/6.9.2/2': NO_BODY,
  'http2/8.1/1': UNDECIDED,
  'http2/8.1.2.1/3': UNDECIDED,
  'http2/8.1.2.6/1': UNDECIDED,
  'http2/8.1.2.6/2': UNDECIDED,
};

/** One case sends a frame that exceeds only the smallest possible limit. */
const SMALL_FRAMES = { HTTP2_FRAME_SIZE: '16384' };

/** Returns all cases with their outcome, or the reason why there are none. */
async function results(): Promise<CaseResult[] | string> {
  if (skipReason !== null) return skipReason;
  const program = await goProgram('h2spec');
  if ('missing' in program) return program.missing;
  const peer = await PeerMesh.up({ environment: SMALL_FRAMES });
  try {
    const { cert, key } = await peer.certificate('ns/demo/sa/client');
    const host = await peer.address('api-1');
    const args = ['-host', host, '-port', '15008', '-cert', cert, '-key', key];
    const { code, stdout, stderr } = await peer.run('node-1', '', program.path, ...args);
    if (code !== 0) throw new Error(`h2spec ended with ${code}: ${stderr}`);
    const lines = stdout.trim().split('\n');
    return lines.map((line) => JSON.parse(line) as CaseResult);
  } finally {
    await peer.down();
  }
}

// Run all cases first: AVA declares tests synchronously.
const outcome = await results();

if (typeof outcome === 'string') {
  process.stderr.write(`\nSKIPPED interop: h2spec: ${outcome}\n`);
  test.skip(`h2spec: ${outcome}`, (t) => t.pass());
} else {
  test('h2spec had all its cases', (t) => t.true(outcome.length > 140));
  for (const { id, description, outcome: verdict, why } of outcome) {
    const title = `h2spec ${id} ${description}`;
    const excuse = NOT_APPLICABLE[id];
    if (excuse !== undefined) test.skip(`${title}: not applicable: ${excuse}`, (t) => t.pass());
    else test(title, (t) => t.is(verdict, 'passed', why));
  }
}
