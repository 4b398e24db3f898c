import type { CaStatus } from '../ca/operations.ts';
import { listed, textTable } from './text-table.ts';

/** The lines of `weft ca status`. */
export function caStatusLines(status: CaStatus): string[] {
  const { rotation, holders } = status;
  const roots = status.roots.map((root) => [
    root.name,
    root.signs ? 'signs' : 'trusted',
    root.notAfter,
    root.subject,
    root.missing.length === 0 ? 'nobody' : listed(root.missing),
  ]);
  const silent = holders.silent.length === 0 ? '' : `; report no roots: ${listed(holders.silent)}`;
  return [
    `key: ${status.source}, until ${status.notAfter}`,
    ...textTable(['ROOT', 'USE', 'UNTIL', 'SUBJECT', 'NOT TRUSTED BY'], roots),
    `holders of certificates: ${holders.count}${silent}`,
    ...(rotation === null ? ['rotation: none'] : rotationLines(rotation)),
  ];
}

function rotationLines(rotation: NonNullable<CaStatus['rotation']>): string[] {
  const until = rotation.until === null ? '' : `, at least until ${rotation.until}`;
  return [
    `rotation: ${rotation.step} since ${rotation.since}, to root ${rotation.newRoot} (${rotation.reason})`,
    `waits: ${rotation.waitsFor === null ? 'no more' : `${rotation.waitsFor}${until}`}`,
    ...(rotation.missing.length === 0 ? [] : [`missing: ${listed(rotation.missing)}`]),
    ...(rotation.skipped.length === 0 ? [] : [`skipped: ${listed(rotation.skipped)}`]),
  ];
}
