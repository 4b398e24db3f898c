/** Chooses iptables programs of the flavour that its argument names, and writes what it found to standard output. */
import { rm } from 'node:fs/promises';
import { chooseTools } from '../../lib/redirect/flavour.ts';
import { makeScratch } from './leftovers.ts';

const force = process.argv[2] === 'legacy' ? 'legacy' : 'nft';
const lockDir = await makeScratch('locks');
try {
  const found = await chooseTools({ ipv6: true, force, lockDir });
  process.stdout.write(JSON.stringify(found));
} finally {
  await rm(lockDir, { recursive: true });
}
