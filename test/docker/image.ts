/** Checks the metadata of the image, and that an actor starts from it without other files. */
import type { ExecutionContext } from 'ava';
import type { DockerHost } from '../support/docker-host.ts';
import { present } from './rig.ts';

/** A sample of the parts that the image must list. */
const PARTS = [
  'npm/ioredis@',
  'npm/node-linux-',
  'generic/node@',
  'generic/openssl@',
  'deb/debian/libatomic1@',
  'deb/debian/redis-server@',
];
/** Packages that only builds and tests need. */
const ABSENT = ['npm/ava@', 'npm/typescript@', 'deb/debian/g%2B%2B@', 'deb/debian/make@'];

/** The part of `docker image inspect` that is read. */
interface ImageFacts {
  readonly Size: number;
  readonly Config: { readonly User: string; readonly Labels: Readonly<Record<string, string>> };
}

/** Checks labels, user, list of parts, and a start without network, shell or writable files. */
export async function checkImage(t: ExecutionContext, host: DockerHost): Promise<void> {
  const { stdout } = await host.docker('image', 'inspect', 'weft');
  const image = present((JSON.parse(stdout) as ImageFacts[])[0]);
  const { Labels, User } = image.Config;
  t.is(User, 'weft');
  t.is(Labels['org.opencontainers.image.title'], 'weft');
  t.log(`image: ${Math.round(image.Size / 1e6)} MB`);

  const kept = Labels['weft.io/sbom'] ?? '';
  const alone = ['run', '--rm', '--network=none', '--read-only'];
  const written = await host.docker(...alone, '--entrypoint=cat', 'weft', kept);
  const made = await host.docker(...alone, 'weft', 'sbom');
  for (const { stdout: text } of [written, made]) {
    const sbom = JSON.parse(text) as { bomFormat: string; components: { purl: string }[] };
    t.is(sbom.bomFormat, 'CycloneDX');
    const has = (part: string): boolean =>
      sbom.components.some(({ purl }) => purl.startsWith(`pkg:${part}`));
    for (const part of PARTS) t.true(has(part), part);
    for (const part of ABSENT) t.false(has(part), part);
  }

  const help = await host.docker(...alone, '-v/dev/null:/bin/dash:ro', 'weft', 'run', '--help');
  t.regex(help.stdout, /node-proxy/);
}
