/** Tests nghttp2's own client against a real listener. `h2load` has no option for a client certificate, so it cannot take part. */
import { execFileSync } from 'node:child_process';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { peerSuite } from './support/suite.ts';

/** Returns why nghttp cannot be used; null when it can. */
function missing(): string | null {
  try {
    execFileSync('nghttp', ['--version'], { stdio: 'pipe' });
    return null;
  } catch (error) {
    return `nghttp (Debian package nghttp2-client): ${errorText(error)}`;
  }
}

peerSuite('nghttp2', missing(), (test) => {
  test('settings are agreed on and requests answered', async (t, peer) => {
    const { cert, key } = await peer.certificate('ns/demo/sa/client');
    const url = `https://${await peer.address('api-1')}:15008/`;
    const args = [
      `--cert=${cert}`,
      `--key=${key}`,
      '-v',
      '-n',
      '--no-verify-peer',
      '-m',
      '20',
      url,
    ];
    const { code, stdout, stderr } = await peer.run('node-1', '', 'nghttp', ...args);
    t.is(code, 0, stderr);
    t.regex(stdout, /recv SETTINGS frame/);
    t.is(stdout.match(/:status: 400/g)?.length, 20);
    t.false(/RST_STREAM|error_code=(?!NO_ERROR)/.test(stdout), stdout);
  });

  test('small windows and padded headers are taken', async (t, peer) => {
    const { cert, key } = await peer.certificate('ns/demo/sa/client');
    const url = `https://${await peer.address('api-1')}:15008/`;
    const small = [
      '-w',
      '1',
      '-W',
      '1',
      '--padding=200',
      '--header-table-size=0',
      '--expect-continue',
    ];
    const args = [`--cert=${cert}`, `--key=${key}`, ...small, '-v', '-n', '--no-verify-peer', url];
    const { code, stdout, stderr } = await peer.run('node-1', '', 'nghttp', ...args);
    t.is(code, 0, stderr);
    t.regex(stdout, /:status: 400/);
  });

  test('no certificate means no answer', async (t, peer) => {
    const url = `https://${await peer.address('api-1')}:15008/`;
    const { stdout, stderr } = await peer.run('node-1', '', 'nghttp', '-v', '-n', '-t', '5', url);
    t.notRegex(stdout, /:status:/);
    t.not(stderr, '');
  });
});
