/** Makes the next version of Weft's image: a layer above the first with a changed message and a changed node proxy. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { makeScratch } from '../../support/leftovers.ts';

const run = promisify(execFile);
const ROOT = new URL('../../..', import.meta.url).pathname;

/** The image's name. */
export const SECOND_IMAGE = 'weft:second';
/** The proxies of the second image end access lines with this. */
export const SECOND_COMPLETE = 'connection complete, says the second image';

/** Texts of the first image with those in their place. Each is there once. */
const CHANGES: readonly (readonly [file: string, from: string, to: string])[] = [
  // A request for a certificate has a field more, without which the second image refuses it.
  [
    'lib/bus/catalog.ts',
    '  csr: z.string().min(1),\n});',
    '  csr: z.string().min(1),\n  askedAt: z.int(),\n});',
  ],
  [
    'lib/bus/catalog.ts',
    "name: 'certificate.sign',\n  version: 1,",
    `name: 'certificate.sign',
  version: 2,
  previous: (body) => ({ ...(body as SignBody), askedAt: 0 }),
  older: ({ askedAt, ...body }) => body,`,
  ],
  ['lib/bus/catalog.ts', "process: 'node-proxy-1',", "process: 'node-proxy-1',\n    askedAt: 1,"],
  ['services/node-proxy/signing.ts', 'csr: csrPem }', 'csr: csrPem, askedAt: Date.now() }'],
  ['lib/log/access-log.ts', "'connection complete'", `'${SECOND_COMPLETE}'`],
];

interface ImageConfig {
  readonly rootfs: { readonly diff_ids: readonly string[] };
  readonly history: readonly unknown[];
}

/** Writes the archive of the second image into a folder; returns its path. */
export async function secondArchive(first: string, folder: string): Promise<string> {
  const work = await makeScratch('second');
  try {
    await run('tar', ['-C', work, '-xf', first]);
    const read = async <T>(name: string): Promise<T> =>
      JSON.parse(await readFile(join(work, name), 'utf8')) as T;
    const [image] = await read<{ Config: string; Layers: readonly string[] }[]>('manifest.json');
    if (image === undefined) throw new Error(`${first} holds no image`);
    const config = await read<ImageConfig>(image.Config);
    const layer = await writeLayer(work);
    const diffs = [...config.rootfs.diff_ids, `sha256:${layer}`];
    const history = [...config.history, { created_by: 'the next version' }];
    const next = { ...config, rootfs: { ...config.rootfs, diff_ids: diffs }, history };
    const manifest = {
      Config: 'second.json',
      RepoTags: [SECOND_IMAGE],
      Layers: [...image.Layers, 'second.tar'],
    };
    await writeFile(join(work, manifest.Config), JSON.stringify(next));
    await writeFile(join(work, 'manifest.json'), JSON.stringify([manifest]));
    const archive = join(folder, 'second.tar');
    const parts = ['manifest.json', manifest.Config, ...manifest.Layers];
    await run('tar', ['-C', work, '-chf', archive, ...parts]);
    return archive;
  } finally {
    await rm(work, { recursive: true });
  }
}

/** Writes the layer of the programs that are built of the changed files; returns its digest. */
async function writeLayer(work: string): Promise<string> {
  const sources = join(work, 'layer/opt/weft');
  await copySources(sources);
  const build = join(sources, 'infra/build.ts');
  await run(process.execPath, [build]);
  const owner = ['--owner=0', '--group=0', '--mode=u+rwX,go+rX'];
  const archive = join(work, 'second.tar');
  await run('tar', ['-C', join(work, 'layer'), ...owner, '-cf', archive, 'opt/weft/dist']);
  const layer = await readFile(archive);
  return createHash('sha256').update(layer).digest('hex');
}

/** Copies what infra/build.ts reads, with the changes. */
async function copySources(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const parts = ['infra/build.ts', 'lib', 'services', 'workers', 'proto/gen'];
  const packages = ['package.json', 'package-lock.json'];
  await run('cp', ['--recursive', '--parents', ...parts, ...packages, folder], { cwd: ROOT });
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  const texts = new Map<string, string>();
  for (const [file, from, to] of CHANGES) {
    const text = texts.get(file) ?? (await readFile(join(ROOT, file), 'utf8'));
    const [before, after, ...more] = text.split(from);
    if (after === undefined || more.length > 0) throw new Error(`${file}: '${from}' is not once`);
    texts.set(file, `${before}${to}${after}`);
  }
  for (const [file, text] of texts) {
    await writeFile(join(folder, file), text);
  }
}
