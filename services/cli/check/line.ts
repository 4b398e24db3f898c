/** The lines of `weft check`. Pure. */

/** `unknown`: it cannot be judged, most often because the user lacks a right. */
export type CheckStatus = 'ok' | 'warning' | 'failed' | 'unknown';

/** A judgement. */
export interface Verdict {
  readonly status: CheckStatus;
  readonly says: string;
  /** The advice; null when nothing is to do. */
  readonly todo: string | null;
}

/** One thing that was judged. */
export interface CheckLine extends Verdict {
  /** The subject: `kubernetes`, `permissions`, … */
  readonly about: string;
}

/** A part of the cluster, or the reason why it could not be read. */
export type Read<T> = { readonly value: T } | { readonly unread: string };

/** Something is right. */
export function ok(says: string): Verdict {
  return { status: 'ok', says, todo: null };
}

/** Something is wrong. */
export function failed(says: string, todo: string): Verdict {
  return { status: 'failed', says, todo };
}

/** Something may be wrong. */
export function warning(says: string, todo: string): Verdict {
  return { status: 'warning', says, todo };
}

/** The lines about one subject. */
export function linesAbout(about: string, verdicts: readonly Verdict[]): readonly CheckLine[] {
  return verdicts.map((verdict) => ({ about, ...verdict }));
}

/** The lines of a part that was read; else one that says why it was not. */
export function judged<T>(
  about: string,
  read: Read<T>,
  judge: (value: T) => readonly Verdict[],
): readonly CheckLine[] {
  if ('value' in read) return linesAbout(about, judge(read.value));
  const todo = 'have this read by somebody who has the right, or get the right';
  return [{ about, status: 'unknown', says: read.unread, todo }];
}

const MARKS: Readonly<Record<CheckStatus, string>> = {
  ok: '√',
  warning: '‼',
  failed: '×',
  unknown: '?',
};

/** The lines for people, under a heading for each subject. */
export function checkLines(lines: readonly CheckLine[]): readonly string[] {
  const subjects = [...new Set(lines.map(({ about }) => about))];
  const parts = subjects.flatMap((subject) => [
    subject,
    ...lines
      .filter(({ about }) => about === subject)
      .flatMap(({ status, says, todo }) => [
        `  ${MARKS[status]} ${says}`,
        ...(todo === null ? [] : [`      ${todo}`]),
      ]),
    '',
  ]);
  return [...parts, summary(lines)];
}

function summary(lines: readonly CheckLine[]): string {
  const count = (wanted: CheckStatus): number =>
    lines.filter(({ status }) => status === wanted).length;
  const texts = (
    [
      ['failed', 'failed'],
      ['unknown', 'could not be judged'],
      ['warning', 'to look at'],
    ] as const
  ).flatMap(([status, word]) => (count(status) === 0 ? [] : [`${count(status)} ${word}`]));
  return texts.length === 0 ? `all ${lines.length} checks passed` : texts.join(', ');
}
