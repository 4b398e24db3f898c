/** Images of Istio's programs for the nodes of a cluster. */
import { execFile } from 'node:child_process';
import { copyFile, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { present } from '../../../lib/errors/assert.ts';
import { makeScratch } from '../../support/leftovers.ts';
import type { IstioPrograms } from './istio-programs.ts';

const run = promisify(execFile);

/** Where Istio's charts find their images. */
export const ISTIO_HUB = 'weft.test';
/** Their tag. */
export const ISTIO_TAG = 'istio';
const LAYER = 'istio/layer.tar';

interface ManifestEntry {
  readonly Config: string;
  readonly RepoTags: readonly string[];
  readonly Layers: readonly string[];
}

interface ImageConfig {
  readonly config: Readonly<Record<string, unknown>>;
  readonly rootfs: { readonly type: string; readonly diff_ids: readonly string[] };
  readonly history?: unknown;
}

/** Users and first words of the images, as upstream's have them. */
const IMAGES = {
  pilot: { User: '1337:1337', Entrypoint: ['/usr/local/bin/pilot-discovery'] },
  'install-cni': { User: '0', Entrypoint: [] },
  ztunnel: { User: '0', Entrypoint: ['/usr/local/bin/ztunnel'] },
} as const;

/**
 * Makes an archive of Weft's image and of those of Istio's charts. These add Istio's programs to Weft's image, which has the
 * libraries and the iptables that upstream's have.
 */
export async function istioArchive(
  folder: string,
  weft: string,
  programs: IstioPrograms,
): Promise<string> {
  const work = await makeScratch('istio-images');
  try {
    await run('tar', ['-C', work, '-xf', weft]);
    const diffId = await addLayer(work, programs);
    const [base] = JSON.parse(await readFile(join(work, 'manifest.json'), 'utf8')) as [
      ManifestEntry,
    ];
    const { history: _history, ...kept } = JSON.parse(
      await readFile(join(work, base.Config), 'utf8'),
    ) as ImageConfig;
    const added: ManifestEntry[] = [];
    for (const [name, settings] of Object.entries(IMAGES)) {
      const config = {
        ...kept,
        config: { ...kept.config, ...settings, Cmd: [] },
        rootfs: { type: 'layers', diff_ids: [...kept.rootfs.diff_ids, diffId] },
      };
      await writeFile(join(work, `${name}.json`), JSON.stringify(config));
      added.push({
        Config: `${name}.json`,
        RepoTags: [`${ISTIO_HUB}/${name}:${ISTIO_TAG}`],
        Layers: [...base.Layers, LAYER],
      });
    }
    await writeFile(join(work, 'manifest.json'), JSON.stringify([base, ...added]));
    const archive = join(folder, 'weft-and-istio.tar');
    const parts = ['manifest.json', base.Config, ...added.map(({ Config }) => Config)];
    await run('tar', ['-C', work, '-cf', archive, ...parts, ...base.Layers, LAYER]);
    return archive;
  } finally {
    await rm(work, { recursive: true });
  }
}

/** Writes the layer with the programs; returns its digest. */
async function addLayer(work: string, programs: IstioPrograms): Promise<string> {
  const files = {
    'usr/local/bin/pilot-discovery': programs.istiod,
    'usr/local/bin/install-cni': programs.installCni,
    'opt/cni/bin/istio-cni': programs.istioCni,
    ...(programs.ztunnel === null ? {} : { 'usr/local/bin/ztunnel': programs.ztunnel }),
  };
  const root = join(work, 'istio/root');
  for (const [path, program] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await copyFile(program, join(root, path));
  }
  const layer = join(work, LAYER);
  const owner = ['--owner=0', '--group=0'];
  await run('tar', ['-C', root, ...owner, '-cf', layer, ...Object.keys(files)]);
  const { stdout } = await run('sha256sum', [layer]);
  return `sha256:${present(stdout.split(' ')[0], 'a digest')}`;
}
