/** Captures what crosses a link, with tcpdump. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';

/** A finished capture. */
export interface Captured {
  /** The packets as they were on the wire. */
  readonly bytes: Buffer;
  /** One line per packet in tcpdump's words, addresses and ports in numbers. */
  readonly packets: readonly string[];
}

/** Captures `device` of a namespace while `body` runs; `filter` is a pcap expression. */
export async function captureWhile(
  link: { readonly netns: string; readonly device: string; readonly filter: string },
  body: () => Promise<void>,
): Promise<Captured> {
  const folder = await mkdtemp(join(tmpdir(), 'weft-capture-'));
  const file = join(folder, 'link.pcap');
  try {
    const args = [
      '-i',
      link.device,
      '-U',
      '--immediate-mode',
      '-s0',
      '-B',
      '16384',
      '-Z',
      'root',
      '-w',
      file,
      ...link.filter.split(' '),
    ];
    const dump = spawn('nsenter', [`--net=${link.netns}`, 'tcpdump', ...args], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const closed = once(dump, 'close');
    try {
      await listening(dump.stderr);
      await body();
    } finally {
      dump.kill('SIGINT');
      await closed;
    }
    const reader = spawn('tcpdump', ['-nn', '-r', file], { stdio: ['ignore', 'pipe', 'ignore'] });
    const packets = (await text(reader.stdout)).split('\n').filter((line) => line !== '');
    return { bytes: await readFile(file), packets };
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** tcpdump says so when it captures. */
function listening(stderr: NodeJS.ReadableStream): Promise<void> {
  return new Promise((resolve, reject) => {
    let said = '';
    stderr.on('data', (chunk: Buffer) => {
      said += chunk.toString();
      if (said.includes('listening on')) resolve();
    });
    stderr.on('end', () => reject(new Error(`tcpdump ended: ${said}`)));
  });
}
