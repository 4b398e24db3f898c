/**
 * Finds and removes the remains of tests that were killed. Everything a test makes outside its own memory carries its process's
 * pid in its name, so that the next run can tell what nobody will remove any more.
 */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp } from 'node:fs/promises';
import { readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { errorText } from '../../lib/errors/mesh-error.ts';

const WEFT = new URL('../../services/cli/weft', import.meta.url).pathname;
const OWNER = process.pid.toString(36);
const NETNS = /^wt([0-9a-z]+)x[0-9a-f]{6}-/;
const CGROUPS = '/sys/fs/cgroup';
const SCRATCH = /^weft-test-([0-9a-z]+)x/;
const MESH = /^weft-(t([0-9a-z]+)x[0-9a-f]{6})$/;

/** Name of a network namespace of this process. */
export function netnsName(label: string): string {
  return `wt${mark()}-${label}`;
}

/** Name of a mesh of this process. */
export function meshName(): string {
  return `t${mark()}`;
}

/** A new empty directory below the system's temporary one. The caller removes it, in a teardown. */
export function makeScratch(label: string): Promise<string> {
  return mkdtemp(join(tmpdir(), `weft-test-${OWNER}x-${label}-`));
}

/** Removes meshes, namespaces and directories of test processes that are gone. Says what it removed. */
export function removeLeftovers(): void {
  for (const [name, mesh = '', owner = ''] of matches('/run', MESH)) {
    if (alive(owner)) continue;
    remove(`mesh ${name}`, WEFT, ['down', '--mesh', mesh]);
  }
  for (const [name, owner = ''] of matches('/run/netns', NETNS)) {
    if (alive(owner)) continue;
    remove(`namespace ${name}`, 'ip', ['netns', 'del', name]);
  }
  for (const [controller] of matches(CGROUPS, /^[a-z_,]+$/)) {
    for (const [name, owner = ''] of matches(join(CGROUPS, controller), NETNS)) {
      if (!alive(owner)) remove(`control group ${name}`, 'find', cgroupRemoval(controller, name));
    }
  }
  for (const [name, owner = ''] of matches(tmpdir(), SCRATCH)) {
    if (alive(owner)) continue;
    rmSync(join(tmpdir(), name), { recursive: true, force: true });
  }
}

/** Arguments of find(1) that remove a control group of this name below a controller of version 1, with those in it. */
export function cgroupRemoval(controller: string, name: string): readonly string[] {
  return [join(CGROUPS, controller, name), '-depth', '-type', 'd', '-exec', 'rmdir', '{}', ';'];
}

function mark(): string {
  return `${OWNER}x${randomBytes(3).toString('hex')}`;
}

/** Entries of `folder` that match, each with the groups of the match; an absent folder has none. */
function matches(folder: string, pattern: RegExp): (readonly [string, ...string[]])[] {
  let names: string[];
  try {
    names = readdirSync(folder);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return [];
    throw error;
  }
  return names.flatMap((name) => {
    const match = pattern.exec(name);
    return match === null ? [] : [[name, ...match.slice(1)] as const];
  });
}

function alive(owner: string): boolean {
  try {
    process.kill(Number.parseInt(owner, 36), 0);
    return true;
  } catch (error) {
    // Another user's process is there all the same.
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Another run may be removing the same: that it is gone is what counts, and a failure must not stop the tests. */
function remove(what: string, command: string, args: readonly string[]): void {
  try {
    execFileSync(command, [...args], { stdio: 'pipe' });
    say(`removed what a killed test left: ${what}`);
  } catch (error) {
    say(`could not remove ${what}: ${errorText(error)}`);
  }
}

function say(text: string): void {
  process.stderr.write(`${text}\n`);
}
