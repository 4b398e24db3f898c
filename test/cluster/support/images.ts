/** The images of a cluster as archives for `ctr images import`. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFile, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { makeScratch } from '../../support/leftovers.ts';

const run = promisify(execFile);

/** The image of a pod's first container, which holds its namespaces. */
export const PAUSE_IMAGE = 'weft.test/pause:1';
/** The image of the DNS server. */
export const DNS_IMAGE = 'weft.test/coredns:1';

const PAUSE = `#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int) { _exit(0); }
static void reap(int) { while (waitpid(-1, nullptr, WNOHANG) > 0) {} }
int main() {
  signal(SIGTERM, end);
  signal(SIGINT, end);
  signal(SIGCHLD, reap);
  for (;;) pause();
}
`;

/** Paths of archives by the names of their files. */
export type ImageArchives = Readonly<Record<string, string>>;

/** Makes the images of the cluster's own programs in a folder. */
export async function ownImages(folder: string, coredns: string): Promise<ImageArchives> {
  const work = await makeScratch('pause');
  try {
    await writeFile(join(work, 'pause.cc'), PAUSE);
    await run('g++', ['-static', '-Os', '-s', '-o', join(work, 'pause'), join(work, 'pause.cc')]);
    return {
      // Sorted by name on import: the first pod needs this one.
      '0-pause': await imageOf(folder, PAUSE_IMAGE, join(work, 'pause')),
      '1-coredns': await imageOf(folder, DNS_IMAGE, coredns),
    };
  } finally {
    await rm(work, { recursive: true });
  }
}

/** Makes an archive of an image that holds one statically linked program and runs it. */
async function imageOf(folder: string, image: string, program: string): Promise<string> {
  const work = await makeScratch('image');
  try {
    await mkdir(join(work, 'root'));
    await copyFile(program, join(work, 'root/program'));
    await run('tar', ['-C', join(work, 'root'), '-cf', join(work, 'layer.tar'), 'program']);
    const layer = createHash('sha256')
      .update(await readFile(join(work, 'layer.tar')))
      .digest('hex');
    const config = {
      architecture: process.arch === 'x64' ? 'amd64' : process.arch,
      os: 'linux',
      config: { Entrypoint: ['/program'] },
      rootfs: { type: 'layers', diff_ids: [`sha256:${layer}`] },
    };
    const manifest = [{ Config: 'config.json', RepoTags: [image], Layers: ['layer.tar'] }];
    await writeFile(join(work, 'config.json'), JSON.stringify(config));
    await writeFile(join(work, 'manifest.json'), JSON.stringify(manifest));
    const archive = join(folder, `${image.replaceAll(/[/:]/g, '-')}.tar`);
    const parts = ['manifest.json', 'config.json', 'layer.tar'];
    await run('tar', ['-C', work, '-cf', archive, ...parts]);
    return archive;
  } finally {
    await rm(work, { recursive: true });
  }
}
